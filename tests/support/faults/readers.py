"""The readers: a file that is damaged, a command that reads it, and what is right.

The list holds every kind of file that Macaron reads; each is read by a command, called as the program calls it.
"""

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from faults import mutations as m
from faults import oracles as o
from faults import packed as p
from faults.contents import KEY
from faults.world import COLUMNS, FAST, GLUE, NAMES


@dataclass(frozen=True)
class Reader:
    """A file and a command.

    :param file: the file that is damaged; of an option: the text that it replaces
    :param command: ``{}`` stands for the option
    :param results: files that it writes, besides its output
    :param right: says what is wrong with an accepted file
    :param also: parts of the world that the command needs, besides those that it names
    :param sealed: the folder whose digests cover the file
    :param names: further words that a message may have instead of the file's name
    :param share: cases, relative to other readers
    """

    name: str
    file: str
    mutation: m.Mutation
    command: tuple[str, ...]
    results: tuple[str, ...] = ()
    right: o.Oracle = o.typed
    also: tuple[str, ...] = ()
    sealed: str | None = None
    names: tuple[str, ...] = ()
    share: float = 1.0

    @property
    def option(self) -> bool:
        return "{}" in self.command

    @property
    def needs(self) -> list[str]:
        """Parts of the world."""
        named = {self.file.partition("/")[0], *self.command} & NAMES
        return sorted(named | set(self.also))


def _json_lines(text: str) -> None:
    for line in filter(str.strip, text.split("\n")[:-1]):  # the last line may be incomplete
        json.loads(line)


PREPARE, PREPARE_TEXT = (("prepare", f"{name}.toml", "--workers", "1") for name in ("pairs", "text"))
TRAIN = ("train", "pairs.toml", "--set", "train.max_updates=1", "--out", "new")
TRAIN_TEXT = ("train", "text.toml", *TRAIN[2:])
RESUME = ("train", "--resume", "--out", "stopped")
TRANSLATE = ("translate", "run", "--input", "lines.txt", "--output", "out.txt", "--one-per-line")
EVALUATE = ("evaluate", "run", "--data", "data")
CONVERT = ("convert", "fairseq", "foreign.pt", "--dict", "dict.txt", "--out", "new")
STORE = ("data/train.src.ids", "data/train.src.offsets", "data/train.tgt.ids", "data/tokenizer/tokenizer.json")
TEXT_STORE = ("text/train.ids", "text/tokenizer/tokenizer.json")
TRAINED, RESUMED, CONVERTED = ((f"{folder}/model.safetensors",) for folder in ("new/model", "stopped/model", "new"))
OUT, PAGE, CORPUS, DATA = ("out.txt",), ("page.html",), ("corpus",), ("data",)
#: Options that take a number.
SEARCH = "beam max-length length-penalty batch-tokens max-source-length threads nbest"
TUNING = "batch-size learning-rate seed weight-decay clip-norm dropout max-length"
#: Settings are named by their keys.
KEYS = ("data.", "train.", "model.", "decode.", "pretrain.", "corpus", "[data]", "--set", "missing")


def _prepare() -> Iterator[Reader]:
    yield Reader("recipe, prepare", "pairs.toml", m.toml, PREPARE, STORE, o.typed_toml, CORPUS, names=KEYS)
    yield Reader("recipe, train", "pairs.toml", m.toml, TRAIN, TRAINED, o.typed_toml, DATA, names=KEYS, share=0.5)
    yield Reader("recipe of text", "text.toml", m.toml, PREPARE_TEXT, TEXT_STORE, o.typed_toml, CORPUS, names=KEYS)
    mixed = ("prepare", "mixed.toml", "--workers", "1")
    written = tuple(name.replace("data/", "mixed/") for name in STORE)
    yield Reader("recipe of corpora, prepare", "mixed.toml", m.toml, mixed, written, o.typed_toml, CORPUS, names=KEYS)
    mixed, also = ("train", "mixed.toml", *TRAIN[2:]), ("mixed",)
    yield Reader("recipe of corpora, train", "mixed.toml", m.toml, mixed, TRAINED, o.typed_toml, also, names=KEYS)
    option = (*PREPARE, "--set", "{}")
    yield Reader("--set", "data.max_words=100", assignment, option, STORE, o.anything, CORPUS, names=(*KEYS, "setting"))
    yield Reader("corpus", "corpus/train.src", m.text, PREPARE, STORE, o.prepared("train.src"))
    for form, mutation in (("gz", p.gz), ("xz", p.xz)):
        file, command = f"{form}/train.src.{form}", ("prepare", f"{form}.toml", *PREPARE[2:])
        yield Reader(f"corpus .{form}", file, mutation, command, STORE, o.prepared(file))
    yield Reader("plain text", "corpus/text.txt", m.text, PREPARE_TEXT, TEXT_STORE, o.anything)
    archives = (
        ("lines.zip", p.zipped, o.unpacked),
        ("lines.tar.gz", p.tar, o.unpacked),
        ("sgm.tar.gz", p.tar, o.anything),
    )
    for name, mutation, right in archives:
        command = ("prepare", f"{name.replace('.', '-')}.toml", *PREPARE[2:])
        written = ("packed/x.src", "packed/x.tgt")
        yield Reader(name, f"packed/downloads/{name}", mutation, command, written, right, names=("packed/x.",))
    command, written = ("prepare", "dump.toml", *PREPARE[2:]), ("packed/wiki.txt",)
    yield Reader(
        "Wikipedia's dump", "packed/downloads/wiki.xml.bz2", p.bz, command, written, o.dump, names=("wiki.txt",)
    )


def _data() -> Iterator[Reader]:
    manifest = "data/prepared.json"
    words = ("data/", "data: no split")
    yield Reader("prepared.json, train", manifest, m.as_json, TRAIN, TRAINED, sealed="data", names=words, share=0.5)
    yield Reader("prepared.json, evaluate", manifest, m.as_json, EVALUATE, sealed="data", names=words)
    yield Reader("prepared.json, prepare", manifest, m.as_json, PREPARE, STORE, o.same_files, CORPUS, sealed="data")
    for name, file, mutation, right in (
        ("store ids", "train.src.ids", m.numbers("<u2"), o.store),
        ("store offsets", "train.tgt.offsets", m.numbers("<u8"), o.store),
        ("data tokenizer", "tokenizer/tokenizer.json", m.as_json, o.equal),
    ):
        words = (f"data/{file.removesuffix('.json')}", "data/tokenizer")
        yield Reader(name, f"data/{file}", mutation, TRAIN, TRAINED, right, sealed="data", names=words, share=0.5)
    documents = "text/train.documents"
    yield Reader(
        "store documents", documents, m.numbers("<u8"), TRAIN_TEXT, TRAINED, o.anything, ("text",), "text", share=0.5
    )
    yield Reader("test references", "data/test.tgt", m.text, EVALUATE, (), o.anything, sealed="data", share=0.5)


def _models() -> Iterator[Reader]:
    sealed = {"sealed": "run/model", "names": ("run/model", "run:", "model.")}
    for file, mutation, right in (
        ("config.json", m.as_json, o.typed),
        ("generation_config.json", m.as_json, o.typed_among_others),
        ("tokenizer.json", m.as_json, o.equal),
        ("tokenizer_config.json", m.as_json, o.typed),
        ("model.safetensors", m.safetensors, o.tensors),
    ):
        yield Reader(file, f"run/model/{file}", mutation, TRANSLATE, OUT, right, **sealed)
    digests = "run/model/digests.json"
    yield Reader("digests.json", digests, m.as_json, TRANSLATE, OUT, o.anything, names=sealed["names"])
    verify = ("verify", "run/model")
    yield Reader("digests.json, verify", digests, m.as_json, verify, (), o.verified, names=("run/model",))
    for folder, file in (("run/model", "model.safetensors"), ("data", "train.src.ids")):
        name, words = f"verify, {file}", (folder,)
        verify = ("verify", folder)
        yield Reader(name, f"{folder}/{file}", m.any_bytes, verify, (), o.anything, (), folder, words, 0.5)
    weights, config, tokenizer = (
        f"run/model/{name}" for name in ("model.safetensors", "config.json", "tokenizer.json")
    )
    yield Reader("int8", weights, m.safetensors, (*TRANSLATE, "--int8"), OUT, o.tensors, share=0.5, **sealed)
    yield Reader("train --from", config, m.as_json, (*TRAIN, "--from", "run"), TRAINED, also=DATA, share=0.3, **sealed)
    command = (*PREPARE, "--set", "data.tokenizer=run")
    yield Reader(
        "prepare --tokenizer", tokenizer, m.as_json, command, STORE, o.typed, ("corpus", "run"), share=0.5, **sealed
    )
    index, command = "shards/model.safetensors.index.json", ("translate", "shards", *TRANSLATE[2:])
    yield Reader("sharded index", index, m.as_json, command, OUT, o.equal, sealed="shards", names=("shards",))
    for name, verb in (("bert", "embed"), ("classifier", "predict")):
        model, command = f"{name}/model", (verb, name, "--input", "lines.txt")
        yield Reader(f"{verb}, config.json", f"{model}/config.json", m.as_json, command, sealed=model, names=(model,))


def _runs() -> Iterator[Reader]:
    at = "stopped/checkpoints/update-00000002"
    for name, file, mutation, right in (
        ("checkpoint state", "state.json", m.as_json, o.typed),
        ("checkpoint weights", "weights.safetensors", m.safetensors, o.tensors),
        ("checkpoint optimiser", "optimiser.safetensors", m.safetensors, o.tensors),
    ):
        words = ("update-00000002",)
        yield Reader(name, f"{at}/{file}", mutation, RESUME, RESUMED, right, DATA, at, words, 0.5)
    # A billion updates are legal, and take as long as they take.
    ends = (*RESUME, "--set", "train.max_updates=4")
    yield Reader(
        "resumed recipe", "stopped/recipe.toml", m.toml, ends, RESUMED, o.typed_toml, DATA, names=KEYS, share=0.5
    )
    yield Reader(
        "resumed metrics", "stopped/metrics.jsonl", m.json_lines, RESUME, RESUMED, o.same_files, DATA, share=0.5
    )
    compare = ("compare", "run", "other", "--out", "page.html", "--data", "data")
    for run, file, parse in (
        ("run", "recipe.toml", tomllib.loads),
        ("run", "metrics.jsonl", _json_lines),
        ("run", "summary.json", json.loads),
        ("run", "environment.json", json.loads),
        ("run", "translations/*", json.loads),
        ("run", "checkpoints/update-00000004/state.json", json.loads),
    ):
        mutation = {"toml": m.toml, "jsonl": m.json_lines}.get(file.rpartition(".")[2], m.as_json)
        report = ("report", run, "--no-samples", "--out", "page.html")
        yield Reader(
            f"report, {run}/{file}", f"{run}/{file}", mutation, report, PAGE, o.shown(parse), names=(run,), share=0.7
        )
        if run == "run" and "state" not in file:
            # A stored score that cannot be read is measured again.
            right = o.same_output if "*" in file else o.shown(parse)
            yield Reader(f"compare, {file}", f"run/{file}", mutation, compare, PAGE, right, names=(run,), share=0.5)


def _tables() -> Iterator[Reader]:
    for form, separator in (("tsv", "\t"), ("csv", ",")):
        files = ("--train", f"train.{form}", "--dev", f"dev.{form}")
        command = ("finetune", "bert", *files, *COLUMNS, *FAST, "--out", "new")
        yield Reader(f"table .{form}", f"train.{form}", m.text, command, TRAINED, o.table(separator, 2, 1))
    predict = ("predict", "classifier", "--input", "dev.tsv", "--output", "out.txt")
    yield Reader("predict table", "dev.tsv", m.text, predict, OUT, o.table("\t", 2, 1))
    glue = ("glue", "bert", "--data", "glue", *GLUE, "--out")
    right = o.table("\t", 4, 0, ("0", "1"))
    yield Reader("GLUE's files", "glue/CoLA/train.tsv", m.text, (*glue, "new"), ("new/results.json",), right, share=0.2)
    written, again = ("glue-run/table.md",), (*glue, "glue-run", "--resume")
    for file, mutation, right in (
        ("results.jsonl", m.json_lines, o.shown(_json_lines)),
        ("run.json", m.as_json, o.typed),
    ):
        path, words = f"glue-run/{file}", ("glue-run",)
        yield Reader(f"glue --resume, {file}", path, mutation, again, written, right, names=words, share=0.3)
    submission = "glue-run/submission.zip"
    yield Reader("glue --check", submission, p.zipped, ("glue", "--check", submission), (), o.equal, share=0.3)


def _texts() -> Iterator[Reader]:
    for name, command in (
        ("translate", TRANSLATE),
        ("score", ("score", "run", "--source", "lines.txt", "--target", "lines.txt", "--output", "out.txt")),
        ("embed", ("embed", "bert", "--input", "lines.txt", "--output", "out.txt")),
        ("predict", ("predict", "classifier", "--input", "lines.txt", "--output", "out.txt")),
    ):
        yield Reader(name, "lines.txt", m.text, command, OUT, o.aligned("lines.txt"))
    packed = ("translate", "run", "--input", "lines.txt.gz", *TRANSLATE[4:])
    yield Reader("translate .gz", "lines.txt.gz", p.gz, packed, OUT, o.aligned("lines.txt.gz"))
    times = rb"(?m)^\d+:\d\d:\d\d[,.]\d+ -->[^\r\n]*"
    # A title holds text alone, up to its end or the document's.
    tags, title = rb"</?[a-zA-Z][^<>]*>", rb"(?is)<title\b.*?(</title[\s/>]|\Z)"
    for form, *patterns in (("html", tags, title), ("srt", times), ("txt", rb"\n")):
        command = ("translate", "run", "--document", f"doc.{form}", "--output", "out.txt")
        yield Reader(f"document .{form}", f"doc.{form}", m.markup, command, OUT, o.kept(*patterns))
    scored = ("evaluate", "run", "--source", "corpus/test.src", "--reference", "corpus/test.tgt")
    yield Reader("evaluate --source", "corpus/test.src", m.text, scored, (), o.anything, share=0.5)
    back = ("translate", "run", "--corpus", "lines.txt", "--out", "back")
    yield Reader(
        "corpus note", "back.json", m.as_json, back, ("back.src",), also=("back.src", "back.tgt"), names=("back",)
    )
    tune = ("finetune", "bert", "--train", "train.tsv", "--dev", "dev.tsv", *COLUMNS, *FAST, "--out", "new", "{}")
    words = ("--", "beam", "length", "batch", "temperature", "top_", "seed", "rate", "train.")
    for name, first, mutation, command in (
        ("translate", "--beam=2", SEARCH, (*TRANSLATE, "{}")),
        ("translate --sample", "--seed=1", "temperature top-k top-p seed nbest", (*TRANSLATE, "--sample", "{}")),
        ("finetune", "--seed=1", TUNING, tune),
        ("glue", "--batch-size=8", f"{TUNING} seeds", ("glue", "bert", "--data", "glue", *GLUE, "--out", "new", "{}")),
    ):
        yield Reader(f"options of {name}", first, options(mutation), command, (), o.anything, names=words, share=0.5)
    scheme = '{"name": "x", "branches": [{"weight": 1.0, "steps": [["F", 1.0], ["G", 1.0]]}]}'
    words = ("scheme", "branch", "step", "coefficient", "weight", "operator")
    yield Reader("scheme", scheme, m.as_json, ("ode", "show", "--json", "--", "{}"), names=words)
    yield Reader("fairseq checkpoint", "foreign.pt", p.pickled, CONVERT, CONVERTED, o.converted)
    yield Reader("fairseq dict.txt", "dict.txt", m.text, CONVERT, (*CONVERTED, "new/tokenizer.json"), o.anything)
    yield Reader(
        "BPE codes", "codes.txt", m.text, (*CONVERT, "--bpe", "codes.txt"), ("new/tokenizer.json",), o.anything
    )


def _requests() -> Iterator[Reader]:
    """Bodies of requests, and the file of keys, without which there is no server."""
    json_type, models = "application/json", ("run", "bert")
    multipart, plain = "multipart/form-data; boundary=mark", "application/x-www-form-urlencoded"
    for path, kind, file, mutation, right in (
        ("/translate", json_type, "libre.json", m.as_json, o.readable),
        ("/translate", plain, "form.txt", m.form, o.anything),
        ("/translate_file", multipart, "multipart.txt", m.form, o.anything),
        ("/v2/translate", json_type, "deepl.json", m.as_json, o.readable),
        ("/v1/embeddings", json_type, "openai.json", m.as_json, o.readable),
        ("/pipeline/feature-extraction", json_type, "features.json", m.as_json, o.readable),
    ):
        command = ("POST", path, kind, file)
        yield Reader(f"POST {path}, {file}", file, mutation, command, (), right, models, names=("",), share=0.5)
    for path, file, body in (
        ("/v1/embeddings", "bert/model/config.json", "openai.json"),
        ("/translate", "run/model/tokenizer_config.json", "libre.json"),
    ):
        name, command, folder = f"serve, {Path(file).name}", ("POST", path, json_type, body), str(Path(file).parent)
        also = ("run", "bert", body)
        yield Reader(
            name, file, m.as_json, command, (), o.typed, also, folder, names=(folder, folder[:4], "language"), share=0.5
        )
    command = ("POST", "/translate", json_type, "libre.json", "keys.txt")
    yield Reader("API keys", "keys.txt", m.keys, command, (), o.keyed(KEY), ("run", "libre.json"))


def assignment(draw: Random, data: bytes) -> bytes:
    """A ``--set``: any key with any value."""
    if draw.random() < 0.1:
        return m.any_bytes(draw, data)
    value = draw.choice([each for each in m.TOML_VALUES if len(each) < 100_000])  # the system's limit of an argument
    names = (
        "max_words vocab_size vocab_multiple max_ratio min_words valid_every pipeline source_lang train root nothing"
    )
    keys = [*(f"data.{name}" for name in names.split()), "train.seed", "train.max_updates", "model.encoder_layers"]
    keys += ["model.scheme", "decode.beam", "data", "nothing.x", "", "a.b.c.d", "data.train.0.path"]
    return f"{draw.choice(keys)}{draw.choice(('=', '=', '=', '', ' = '))}{value}".encode()


def options(names: str) -> m.Mutation:
    """Options of these names with any number."""
    # 100,000 tokens are legal, and take as long as they take; one more is refused.
    values = "0 -1 1 2 20 100001 1000000000 999999999999999999999999999999 nan inf 1e308 1e-320 x 0.5 1,2"

    def mutate(draw: Random, _: bytes) -> bytes:
        return f"--{draw.choice(names.split())}={draw.choice([*values.split(), '', m.MANY_DIGITS])}".encode()

    return mutate


_PARTS = (_prepare, _data, _models, _runs, _tables, _texts, _requests)
READERS = {reader.name: reader for part in _PARTS for reader in part()}
