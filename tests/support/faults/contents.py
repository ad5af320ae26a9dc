"""What the files of the world hold that fuzzing starts from."""

PAIRS = """[data]
source_lang = "src"
target_lang = "tgt"
root = "corpus"
out = "data"
vocab_size = 280
remove_overlap = "none"
remove_duplicates = false
train = [{ path = "train" }]
valid = [{ path = "valid" }]
test = [{ path = "test" }]

[model]
preset = "macaron-tiny"
hidden_size = 16
num_attention_heads = 2
intermediate_size = 32
encoder_layers = 1
decoder_layers = 1

[train]
batch_tokens = 512
learning_rate = 0.003
warmup = 2
max_updates = 4
log_every = 1
validate_every = 2
checkpoint_every = 2
device = "cpu"

[decode]
beam = 2
max_length = 12
"""
TEXT = """[data]
kind = "text"
root = "corpus"
out = "text"
vocab_size = 290
train = [{ path = "text.txt" }]

[model]
preset = "macaron-bert-tiny"
hidden_size = 16
num_attention_heads = 2
intermediate_size = 32
num_hidden_layers = 1
max_position_embeddings = 64

[train]
batch_tokens = 512
learning_rate = 0.003
warmup = 2
max_updates = 3
log_every = 1
validate_every = 2
checkpoint_every = 2
device = "cpu"

[pretrain]
max_tokens = 32
"""
#: Two corpora, one with a tag.
CORPORA = """[[data.train]]
path = "train"
weight = 2.0
tag = "<a>"

[[data.train]]
path = "more"
weight = 0.5
state = "raw"

[model]"""
MIXED = PAIRS.replace('"data"', '"mixed"').replace('train = [{ path = "train" }]\n', "").replace("[model]", CORPORA)
HTML = """<!DOCTYPE html>
<html><head><title>the cat</title><style>p { color: red }</style></head>
<body>
<h1 class="a">the cat sat</h1>
<!-- a comment -->
<p>it was <b>good</b> &amp; <a href="x.html" title="mat">bad</a>.<br> the cat ran away.</p>
<ul><li>on a <i>mat</i></li><li>from <code>home</code></li></ul>
<script>if (1 < 2) { run("<p>") }</script>
</body></html>
"""
SRT = """1
00:00:01,000 --> 00:00:02,500
the cat <i>sat</i>
on a mat

2
00:00:03,000 --> 00:00:04,000
- it was good
- and bad

3
00:00:05,000 --> 00:00:06,000
{\\an8}home
"""
#: Bodies of requests, by the file.
BODIES = {
    "libre.json": {"q": ["the cat sat", "<b>home</b>"], "source": "src", "target": "tgt", "format": "html"},
    "deepl.json": {"text": ["the cat sat"], "source_lang": "SRC", "target_lang": "TGT", "tag_handling": "html"},
    "openai.json": {"input": ["the cat sat", "home"], "model": "bert", "encoding_format": "float"},
    "features.json": {"inputs": "the cat sat", "parameters": {"normalize": True}},
}
FORM = "q=the+cat+sat&source=auto&target=tgt&alternatives=2"
MULTIPART = "".join(
    f'--mark\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
    for name, value in (('file"; filename="a.srt', SRT), ("source", "src"), ("target", "tgt"))
)
KEY = "the-key-123"
KEYS = f"# keys\n\n{KEY} 1000 # mine\nanother-key-456\n"

#: Quick settings of the commands that train classifiers.
FAST = ("--learning-rate", "1e-3", "--batch-size", "16", "--epochs", "1", "--device", "cpu")


#: Corpora out of archives that are in the folder of downloads.
ARCHIVES = """[data]
source_lang = "src"
target_lang = "tgt"
root = "packed"
out = "unpacked"
vocab_size = 280
valid_every = 0
archives = [{{ name = "a", urls = ["http://localhost:9/{name}"] }}]
[[data.train]]
path = "x"
archive = "a"
source = "in/train.src{ending}"
target = "in/train.tgt{ending}"
format = "{format}"
"""
DUMP = """[data]
kind = "text"
root = "packed"
out = "unpacked"
vocab_size = 290
wikipedia = [{ path = "wiki.txt", urls = ["http://localhost:9/wiki.xml.bz2"] }]
train = [{ path = "wiki.txt" }]
"""
