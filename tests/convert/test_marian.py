"""MarianMT folders of transformers (OPUS-MT), converted: the same logits, translations and tokens; served, too."""

import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianConfig, MarianMTModel

from macaron import Translator
from macaron.convert import convert_huggingface
from macaron.convert.huggingface import read_sentencepiece
from macaron.errors import MacaronError
from macaron.models import TranslationModel
from macaron.text import MacaronTokenizer

sentencepiece = pytest.importorskip("sentencepiece", reason="the extra marian is not installed: make setup")

SOURCE = [
    f"{one} {noun} {verb} {two} {noun}s, and {noun}s run."
    for one, two in (("the", "two"), ("a", "the"), ("one", "no"))
    for noun in ("cat", "dog", "house", "garden", "river", "window")
    for verb in ("sees", "runs to", "likes", "was", "finds")
]
TARGET = [
    f"{one} {noun} {verb} {two} Hunde und Katzen."
    for one, two in (("die", "zwei"), ("eine", "die"))
    for noun in ("Katze", "Blume", "Straße", "Tür", "Stadt")
    for verb in ("sieht", "findet", "mag", "war für")
]
SENTENCES = ["the cat sees a dog", "two cats run.", "run", "the  dog  and , cats"]


def message(*fields: tuple[int, object]) -> bytes:
    """A message of protocol buffers with these fields: bytes, floats or small numbers."""
    made = b""
    for number, value in fields:
        if isinstance(value, float):
            made += bytes([number << 3 | 5]) + struct.pack("<f", value)
        elif isinstance(value, int):
            made += bytes([number << 3, value])
        else:
            size = len(value)
            length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
            made += bytes([number << 3 | 2]) + length + value
    return made


def write_spm(path: Path, pieces: dict[str, float], kind: int = 1) -> None:
    """A SentencePiece model of these pieces."""
    control = {"<unk>": 2, "<s>": 3, "</s>": 3}
    entries = [message((1, name.encode()), (2, 0.0), (3, kind)) for name, kind in control.items()]
    entries += [message((1, piece.encode()), (2, score)) for piece, score in pieces.items()]
    content = b"".join(message((1, entry)) for entry in entries)
    path.write_bytes(content + message((2, message((3, kind))), (3, message((1, b"identity"), (3, 1), (4, 1)))))


def letters(*words: str) -> dict[str, float]:
    """Pieces: these words, likely, and their letters."""
    pieces = {f"▁{word}": -2.0 - len(word) / 10 for word in words}
    return pieces | dict.fromkeys(sorted({*"▁", *"".join(words)}), -8.0)


def folder(path: Path, spm: str = "written", rows_more: int = 0, start: bool = False, **changes) -> MarianMTModel:
    path.mkdir()
    if spm == "written":
        write_spm(path / "source.spm", letters("the", "cat", "cats", "dog", "dogs", "sees", "run", "a", "and", "two"))
        write_spm(path / "target.spm", letters("die", "Katze", "Hund", "und", "laufen", "sieht"))
    else:
        for side, lines in (("source", SOURCE), ("target", TARGET)):
            (path / "text").write_text("\n".join(lines) + "\n")
            prefix, options = str(path / side), {"vocab_size": 60, "character_coverage": 1.0, "minloglevel": 2}
            sentencepiece.SentencePieceTrainer.train(
                input=str(path / "text"), model_prefix=prefix, hard_vocab_limit=False, **options
            )
            (path / f"{side}.model").rename(path / f"{side}.spm")
    found = [[each.piece for each in read_sentencepiece(path / f"{side}.spm").pieces] for side in ("source", "target")]
    names = ["</s>", "<unk>", *dict.fromkeys(name for each in found for name in each if name[0] != "<"), ">>deu<<"]
    names += ["<s>"] if start else []
    vocabulary = {name: index for index, name in enumerate([*names, "<pad>"])}
    (path / "vocab.json").write_text(json.dumps(vocabulary))
    tokenizer = {"source_lang": "en", "target_lang": "de", "tokenizer_class": "MarianTokenizer"}
    (path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    rows = len(vocabulary) + rows_more
    torch.manual_seed(4)
    layers = {
        f"{stack}_{key}": size
        for stack in ("encoder", "decoder")
        for key, size in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 48))
    }
    special = {"pad_token_id": len(vocabulary) - 1, "decoder_start_token_id": len(vocabulary) - 1, "eos_token_id": 0}
    settings = {"d_model": 32, "activation_function": "swish", "scale_embedding": True, "forced_eos_token_id": None}
    config = MarianConfig(vocab_size=rows, decoder_vocab_size=rows, **layers, **special, **{**settings, **changes})
    model = MarianMTModel(config).eval()
    for parameter in filter(lambda each: each.requires_grad, model.parameters()):
        parameter.data += 0.4 * torch.randn_like(parameter)
    model.generation_config.num_beams, model.generation_config.max_length = 4, 30
    model.final_logits_bias += torch.randn_like(model.final_logits_bias)
    model.save_pretrained(path)
    return model


def new_ids(model: MarianMTModel) -> torch.Tensor:
    """Ours of theirs: <s> <pad> </s> <unk>, then all others in their order."""
    pad, rows = model.config.pad_token_id, model.config.vocab_size
    order = [-1, pad, 0, 1, *(index for index in range(2, rows) if index != pad)]
    return torch.tensor([order.index(old) for old in range(rows)])


@pytest.mark.parametrize(
    "changes", [{}, {"activation_function": "relu", "scale_embedding": False}, {"rows_more": 3, "d_model": 40}]
)
def test_logits_and_gradients_are_those_of_marian(tmp_path: Path, changes: dict[str, object]):
    theirs = folder(tmp_path / "marian", **changes)
    convert_huggingface(tmp_path / "marian", tmp_path / "ours")
    ours, new = TranslationModel.from_pretrained(tmp_path / "ours"), new_ids(theirs)
    pad = theirs.config.pad_token_id
    source, target = torch.randint(2, pad, (3, 9)), torch.randint(2, pad, (3, 7))
    target[:, 0] = pad
    source[1, 6:] = pad
    wanted = theirs(source, attention_mask=(source != pad).long(), decoder_input_ids=target).logits
    found = ours(new[source], new[target])
    torch.testing.assert_close(found[..., new], wanted, atol=1e-5, rtol=1e-5)
    assert float(found.softmax(-1)[..., 0].detach().max()) == 0
    # Gradients in double precision: sums over a post-norm network differ in float32 already.
    theirs.double()
    ours.double()
    direction = torch.randn(wanted.shape, dtype=torch.float64)
    given = {"attention_mask": (source != pad).long(), "decoder_input_ids": target}
    (ours(new[source], new[target])[..., new] * direction).sum().backward()
    (theirs(source, **given).logits * direction).sum().backward()
    inner, layer = theirs.model.decoder.layers[1], ours.decoder.layers[1].sublayers
    pairs = {
        theirs.model.shared.weight: ours.embedding.tokens.weight.grad[new],
        inner.encoder_attn.v_proj.weight: layer["H1"].operator.kv.weight.grad[len(inner.encoder_attn.v_proj.weight) :],
        inner.self_attn.q_proj.bias: layer["F1"].operator.qkv.bias.grad[: len(inner.self_attn.q_proj.bias)],
        theirs.model.encoder.layers[0].fc2.weight: ours.encoder.layers[0].sublayers["G1"].operator.fc2.weight.grad,
    }
    for parameter, gradient in pairs.items():
        rows = torch.ones(len(gradient), dtype=torch.bool)
        if parameter is theirs.model.shared.weight:
            rows[pad] = False  # transformers keeps the padding's vector as it is
        scale = float(parameter.grad.abs().max())
        torch.testing.assert_close(gradient[rows] / scale, parameter.grad[rows] / scale, atol=1e-5, rtol=1e-4)


def test_a_vocabulary_with_a_start_token_keeps_its_row(tmp_path: Path):
    """Vocabularies made from those of SentencePiece have all of its control tokens."""
    theirs = folder(tmp_path / "marian", start=True)
    convert_huggingface(tmp_path / "marian", tmp_path / "ours")
    ours, pad = TranslationModel.from_pretrained(tmp_path / "ours"), theirs.config.pad_token_id
    order = [pad - 1, pad, 0, 1, *range(2, pad - 1)]
    assert ours.config.vocab_size == pad + 1
    new = torch.tensor([order.index(old) for old in range(pad + 1)])
    source, target = torch.randint(2, pad, (2, 9)), torch.randint(2, pad, (2, 7))
    wanted = theirs(source, decoder_input_ids=target).logits
    torch.testing.assert_close(ours(new[source], new[target])[..., new], wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("beam", [1, 4])
def test_translations_are_those_of_generate(tmp_path: Path, beam: int):
    theirs = folder(tmp_path / "marian")
    convert_huggingface(tmp_path / "marian", tmp_path / "ours")
    new, translator = new_ids(theirs), Translator(tmp_path / "ours", device="cpu")
    assert translator.settings.beam == 4
    assert type(translator.searched).__name__ == "CpuTranslationModel"
    back = {int(index): old for old, index in enumerate(new)}
    auto = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
    pad = theirs.config.pad_token_id
    for text in SENTENCES:
        ids = translator.tokenizer.encode_lines([text])[0]
        options = {"num_beams": beam, "max_length": 30, "early_stopping": beam > 1, "do_sample": False}
        source = torch.tensor([[back[index] for index in ids]])
        wanted = theirs.generate(source, bad_words_ids=[[pad]], forced_eos_token_id=0, **options)[0].tolist()
        if beam == 1:  # with beams, transformers and the authors' code end a search by different rules
            best = translator.translate_nbest([text], beam=1, max_length=28)[0][0]
            assert new[torch.tensor(wanted)].tolist()[1:] == list(best.tokens)
        generated = auto.generate(torch.tensor([ids]), forced_eos_token_id=2, **options)[0].tolist()
        assert generated == new[torch.tensor(wanted)].tolist()


def test_text_with_sentencepiece_itself(tmp_path: Path):
    """Pieces, unknown letters and normalising are those of the package and of transformers' tokenizer."""
    theirs = folder(tmp_path / "marian", "trained")
    convert_huggingface(tmp_path / "marian", tmp_path / "ours")
    new = new_ids(theirs)
    marian, ours = (
        AutoTokenizer.from_pretrained(tmp_path / "marian"),
        MacaronTokenizer.from_pretrained(tmp_path / "ours"),
    )
    auto = AutoTokenizer.from_pretrained(tmp_path / "ours")
    for text in [*SENTENCES, "ﬁne ｃat", " two  cats ", "xyx cat", "z cat", "cat 東京 run", ""]:
        wanted = new[torch.tensor(marian(text)["input_ids"])].tolist()
        assert ours.encode_lines([text])[0] == wanted, text
        assert auto(text)["input_ids"] == wanted
    for text in [*TARGET[:3], "die Tür war für Hunde"]:
        wanted = new[torch.tensor(marian(text_target=text)["input_ids"])].tolist()
        assert ours.encode_lines([text], "target")[0] == wanted, text
        assert auto(text_target=text)["input_ids"] == wanted
        assert ours.decode_lines([wanted]) == [text]
    tagged = marian(">>deu<< the cat")["input_ids"]
    assert new[tagged[0]] == ours.backend_tokenizer.token_to_id(">>deu<<")
    assert TranslationModel.from_pretrained(tmp_path / "ours").config.tokenizer_fingerprint == ours.fingerprint()
    auto.save_pretrained(tmp_path / "again")
    assert MacaronTokenizer.from_pretrained(tmp_path / "again").fingerprint() == ours.fingerprint()


def test_commands_take_a_converted_model(tmp_path: Path, macaron):
    folder(tmp_path / "marian")
    (tmp_path / "text.en").write_text("the cat sees a dog\n\nrun\n")
    done = macaron("convert", "huggingface", tmp_path / "marian", "--out", tmp_path / "ours")
    assert "translation: lie-fg, post-norm, 2+2 layers" in done.stdout, done.stderr
    plain = macaron("translate", tmp_path / "ours", "--input", tmp_path / "text.en", "--device", "cpu")
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout.count("\n") == 3
    tagged = macaron("translate", tmp_path / "ours", "--input", tmp_path / "text.en", "--tag", ">>deu<<", "--int8")
    assert tagged.returncode == 0, tagged.stderr
    options = ("--source", tmp_path / "text.en", "--target", tmp_path / "text.en", "--device", "cpu")
    scored = macaron("score", tmp_path / "ours", *options)
    assert scored.returncode == 0, scored.stderr
    assert macaron("verify", tmp_path / "ours").returncode == 0
    (tmp_path / "page.html").write_text("<p>the <b>cat</b> sees a dog</p>\n")
    page = macaron("translate", tmp_path / "ours", "--document", tmp_path / "page.html", "--device", "cpu")
    assert "<b>" in page.stdout, page.stderr
    pairs = ("--source-lang", "en", "--target-lang", "de", "--train", tmp_path / "text", "--out", tmp_path / "data")
    (tmp_path / "text.de").write_text("die Katze sieht\n\nlaufen\n")
    refused = macaron("prepare", *pairs, "--tokenizer", tmp_path / "ours")
    assert refused.returncode == 1
    assert "converted from transformers" in refused.stderr
    from macaron.models.catalogue import Catalogue

    served = Catalogue([str(tmp_path / "ours")])
    assert list(served.sources) == ["en"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings = False"),
        ({"normalize_before": True}, "normalize_before = True"),
        ({"normalize_embedding": True}, "normalize_embedding = True"),
        ({"decoder_ffn_dim": 50}, "decoder_ffn_dim = 50"),
        ({"decoder_vocab_size": 7}, "decoder_vocab_size = 7"),
        ({"activation_function": "tanh"}, "activation_function = 'tanh'"),
        ({"pad_token_id": 10**6}, "pad_token_id in config.json"),
        ({"encoder_layers": 3}, r"lack 'model\.encoder\.layers\.2"),
    ],
)
def test_what_is_not_supported_is_refused_by_its_key(tmp_path: Path, changes: dict[str, object], message: str):
    folder(tmp_path / "marian")
    config = json.loads((tmp_path / "marian" / "config.json").read_text())
    (tmp_path / "marian" / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(MacaronError, match=message):
        convert_huggingface(tmp_path / "marian", tmp_path / "ours")


def test_stored_positions_are_sinusoids_or_refused(tmp_path: Path):
    """Older folders store them."""
    model, path = folder(tmp_path / "marian"), tmp_path / "marian" / "model.safetensors"
    positions = model.model.encoder.embed_positions.weight.data.clone()
    save_file({**load_file(path), "model.encoder.embed_positions.weight": positions}, path)
    convert_huggingface(tmp_path / "marian", tmp_path / "ours")
    save_file({**load_file(path), "model.encoder.embed_positions.weight": positions + 0.1}, path)
    with pytest.raises(MacaronError, match="trained positions are not supported"):
        convert_huggingface(tmp_path / "marian", tmp_path / "trained")


@pytest.mark.parametrize("damage", ["cut", "bpe", "missing", "noise"])
def test_a_damaged_sentencepiece_model_is_refused(tmp_path: Path, damage: str):
    folder(tmp_path / "marian")
    path = tmp_path / "marian" / "source.spm"
    if damage == "bpe":
        write_spm(path, letters("cat"), kind=2)
    elif damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-7] if damage == "cut" else bytes(range(200)))
    with pytest.raises(MacaronError, match=r"source\.spm"):
        convert_huggingface(tmp_path / "marian", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
