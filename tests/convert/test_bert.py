"""BERT folders of transformers, converted: the same logits, gradients and tokens, and what follows from them."""

import json
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    BertTokenizerFast,
)

from macaron import Embedder
from macaron.convert import convert_huggingface
from macaron.errors import MacaronError
from macaron.models import EncoderForMaskedLM, EncoderForSequenceClassification, EncoderModel
from macaron.tasks.classifier import Predictor

WORDS = [
    "[PAD]",
    "[unused0]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cat",
    "dog",
    "see",
    "##s",
    "sat",
    ",",
    ".",
    "caf",
    "##e",
    "a",
]
TEXTS = ["The cat sees the dog.", "café", "a zebra, the [MASK] sat"]
ROWS = len(WORDS) + 3  # the embedding is longer than the vocabulary
#: Ours of theirs: <s> <pad> </s> <unk> <mask> <cls>, then all others in their order.
ORDER = [-1, 0, 4, 2, 5, 3, 1, *range(6, ROWS)]
NEW = torch.tensor([ORDER.index(old) for old in range(ROWS)])


def folder(path: Path, kind=BertForMaskedLM, **changes):
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = BertConfig(vocab_size=ROWS, max_position_embeddings=40, **sizes, **changes)
    model = kind(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(path)
    (path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "tokenizer_class": "BertTokenizer"}))
    return model


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    ids = torch.randint(6, ROWS, (3, 12))
    ids[:, 0] = 3
    real = torch.ones(3, 12, dtype=torch.bool)
    real[1, 8:] = False
    ids[~real] = 0
    return ids, real, torch.randint(0, 2, (3, 12))


def test_masked_words_and_their_gradients(tmp_path: Path):
    theirs = folder(tmp_path / "bert")
    convert_huggingface(tmp_path / "bert", tmp_path / "ours")
    ours = EncoderForMaskedLM.from_pretrained(tmp_path / "ours")
    ids, real, segments = batch()
    wanted = theirs(ids, attention_mask=real.long(), token_type_ids=segments).logits
    found = ours(NEW[ids], real, segments)
    torch.testing.assert_close(found[..., NEW][real], wanted[real], atol=1e-5, rtol=1e-5)
    assert float(found.softmax(-1)[..., 0].detach().max()) == 0
    direction = torch.randn_like(wanted) * real[..., None]
    (found[..., NEW] * direction).sum().backward()
    (wanted * direction).sum().backward()
    first, inner = ours.model.encoder.layers[0].sublayers, theirs.bert.encoder.layer[0]
    pairs = {
        theirs.bert.embeddings.word_embeddings.weight: ours.model.embedding.tokens.weight.grad[NEW],
        theirs.bert.embeddings.token_type_embeddings.weight: ours.model.embedding.segments.weight.grad,
        theirs.bert.embeddings.LayerNorm.weight: ours.model.embedding.norm.weight.grad,
        inner.attention.self.value.weight: first["F1"].operator.qkv.weight.grad[64:],
        inner.output.LayerNorm.bias: first["G1"].norm.bias.grad,
        theirs.cls.predictions.bias: ours.model.embedding.output_bias.grad[NEW],
    }
    for parameter, gradient in pairs.items():
        scale = float(parameter.grad.abs().max())
        torch.testing.assert_close(gradient / scale, parameter.grad / scale, atol=1e-5, rtol=1e-4)
    auto = AutoModelForMaskedLM.from_pretrained(tmp_path / "ours")
    logits = auto(NEW[ids], attention_mask=real.long(), token_type_ids=segments).logits
    torch.testing.assert_close(logits[..., NEW][real], wanted[real], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("file", ["vocab.txt", "tokenizer.json"])
def test_text_becomes_the_same_tokens(tmp_path: Path, file: str):
    folder(tmp_path / "bert")
    theirs = BertTokenizerFast(tokenizer_object=None, vocab=str(tmp_path / "bert" / "vocab.txt"), do_lower_case=True)
    if file == "tokenizer.json":
        theirs.save_pretrained(tmp_path / "bert")
        (tmp_path / "bert" / "vocab.txt").unlink(missing_ok=True)
    convert_huggingface(tmp_path / "bert", tmp_path / "ours")
    ours = AutoTokenizer.from_pretrained(tmp_path / "ours")
    for text in TEXTS:
        ids = NEW[torch.tensor(theirs(text)["input_ids"])].tolist()
        assert ours(text.replace("[MASK]", "<mask>"))["input_ids"] == ids
    pair = theirs(TEXTS[0], TEXTS[1])
    assert ours(TEXTS[0], TEXTS[1])["input_ids"] == NEW[torch.tensor(pair["input_ids"])].tolist()
    assert ours(TEXTS[0], TEXTS[1])["token_type_ids"] == pair["token_type_ids"]
    assert ours.decode(ours("The cat sees")["input_ids"], skip_special_tokens=True) == "the cat sees"


@pytest.mark.parametrize("labels", [1, 3])
def test_a_classifier(tmp_path: Path, labels: int):
    names = {index: f"class {index}" for index in range(labels)}
    theirs = folder(tmp_path / "bert", BertForSequenceClassification, id2label=names)
    convert_huggingface(tmp_path / "bert", tmp_path / "ours")
    ours = EncoderForSequenceClassification.from_pretrained(tmp_path / "ours")
    ids, real, segments = batch()
    wanted = theirs(ids, attention_mask=real.long(), token_type_ids=segments).logits
    torch.testing.assert_close(ours(NEW[ids], real, segments), wanted, atol=1e-5, rtol=1e-5)
    auto = AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours")
    found = auto(NEW[ids], attention_mask=real.long(), token_type_ids=segments).logits
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    predicted = Predictor(tmp_path / "ours", "cpu").predict([["The cat sees the dog."]])[0]
    tokens = torch.tensor([[3, *map(WORDS.index, ["the", "cat", "see", "##s", "the", "dog", "."]), 4]])
    logits = theirs(tokens).logits[0].detach()
    if labels == 1:
        assert predicted["score"] == pytest.approx(float(logits[0]), abs=1e-5)
    else:
        assert predicted["label"] == names[int(logits.argmax())]
        assert predicted["probability"] == pytest.approx(float(logits.softmax(-1).max()), abs=1e-5)


def test_an_encoder_alone_embeds(tmp_path: Path):
    theirs = folder(tmp_path / "bert", BertModel)
    convert_huggingface(tmp_path / "bert", tmp_path / "ours")
    assert EncoderModel.from_pretrained(tmp_path / "ours").config.norm == "post"
    tokens = torch.tensor([[3, WORDS.index("cat"), 4]])
    mean = theirs(tokens).last_hidden_state[0].mean(0)
    found = torch.from_numpy(Embedder(tmp_path / "ours", "cpu").embed("cat"))
    torch.testing.assert_close(found, mean / mean.norm(), atol=1e-5, rtol=1e-4)


def test_a_converted_model_is_fine_tuned(tmp_path: Path, macaron):
    folder(tmp_path / "bert")
    convert_huggingface(tmp_path / "bert", tmp_path / "ours")
    lines = [f"the {animal} sat,{animal}" for animal in ("cat", "dog")] * 20
    (tmp_path / "examples.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    files = ("--train", tmp_path / "examples.csv", "--dev", tmp_path / "examples.csv")
    done = macaron(
        "finetune", tmp_path / "ours", *files, "--epochs", 6, "--learning-rate", 0.01, "--out", tmp_path / "t"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "t" / "results.json").read_text())["scores"]["dev"]["accuracy"] == 100


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "relu"}, "hidden_act = 'relu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"is_decoder": True}, "is_decoder = True"),
        ({"type_vocab_size": 1}, "type_vocab_size = 1"),
        ({"architectures": ["BertForTokenClassification"]}, "architectures"),
        ({"num_hidden_layers": 3}, r"lack 'bert\.encoder\.layer\.2"),
        ({"max_position_embeddings": 41}, "size mismatch for"),
    ],
)
def test_what_is_not_supported_is_refused_by_its_key(tmp_path: Path, changes: dict[str, object], message: str):
    folder(tmp_path / "bert")
    config = json.loads((tmp_path / "bert" / "config.json").read_text())
    (tmp_path / "bert" / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(MacaronError, match=message):
        convert_huggingface(tmp_path / "bert", tmp_path / "ours")


def test_a_vocabulary_without_a_special_token_is_refused(tmp_path: Path):
    folder(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(WORDS).replace("[MASK]", "mask") + "\n")
    with pytest.raises(MacaronError, match=r"lacks '\[MASK\]'"):
        convert_huggingface(tmp_path / "bert", tmp_path / "ours")
