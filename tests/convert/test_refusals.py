"""Checkpoints that are no model of the authors', dictionaries that do not fit, and places that are taken."""

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer
from typer.testing import CliRunner

from macaron.cli import main
from macaron.cli.convert import app
from macaron.convert import convert_fairseq
from macaron.convert.fairseq_checkpoint import FairseqCheckpoint, read_checkpoint
from macaron.errors import MacaronError
from macaron.text.tokenizer import MacaronTokenizer

Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], Any]
MACARON, BERT = "tiny_macaron_v2_trained", "bert_tiny_macaron"
CLASSIFIER = "classifier_tiny_macaron_cross_entropy_classify"


def put(part: str, key: str, value: Any) -> Change:
    def change(args: dict[str, Any], model: dict[str, torch.Tensor]) -> None:
        where: dict[str, Any] = args if part == "args" else model
        if value is None:
            del where[key]
        else:
            where[key] = value

    return change


def drop(text: str) -> Change:
    return lambda args, model: [model.pop(name) for name in list(model) if text in name]


def save(checkpoint: FairseqCheckpoint, path: Path) -> None:
    torch.save({"args": argparse.Namespace(**checkpoint.args), "model": checkpoint.tensors}, path)


def quantised() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that PyTorch will drop them one day
        return torch.quantize_per_tensor(torch.ones(64, 32), 0.1, 0, torch.qint8)


def doubled(times: int) -> list[Any]:
    """Lists in lists, which written out would fill any memory."""
    return [doubled(times - 1)] * 2 if times else []


FC1, TABLE = "encoder.layers.1.fc1.weight", "encoder.embed_tokens.weight"
CASES: dict[str, tuple[str, Change, str]] = {
    "missing weight": (MACARON, put("model", FC1, None), f"'{FC1}' is missing"),
    "missing bias": (MACARON, put("model", "decoder.layer_norm.bias", None), r"'decoder\.layer_norm\.bias' is missing"),
    "first layer missing": (MACARON, drop("decoder.layers.0."), "no weights for 'decoder.layers.0'"),
    "last layer missing": (MACARON, drop("encoder.layers.1."), "args.encoder_layers is 2, but the weights say 1"),
    "no layers": (MACARON, drop("layers"), "not a translation model"),
    "no table": (MACARON, put("model", TABLE, None), f"'{TABLE}' is missing"),
    "missing half-step": (MACARON, drop("decoder.layers.0.macaron_fc1"), r"'decoder\.layers\.0\.macaron_fc1"),
    "plain, but says macaron": (MACARON, drop("macaron"), "args.macaron is True"),
    "wrong shape": (MACARON, put("model", FC1, torch.ones(63, 32)), rf"'{FC1}' has shape \(63, 32\).*\(64, 32\)"),
    "scalar": (MACARON, put("model", TABLE, torch.tensor(1.0)), "should be a matrix"),
    "infinite": (MACARON, put("model", FC1, torch.full((64, 32), torch.inf)), "not finite; the training has"),
    "whole numbers": (MACARON, put("model", FC1, torch.ones(64, 32, dtype=torch.int64)), f"'{FC1}' .* type int64, not"),
    "truth values": (MACARON, put("model", FC1, torch.ones(64, 32, dtype=torch.bool)), "type bool, not floating-point"),
    "complex": (MACARON, put("model", FC1, torch.ones(64, 32) * 1j), "type complex64, not floating-point"),
    "quantised": (MACARON, put("model", FC1, quantised()), "type qint8, not floating-point.* before any quantisation"),
    "eight bits": (MACARON, put("model", FC1, torch.ones(64, 32).to(torch.float8_e4m3fn)), "type float8_e4m3fn, not"),
    "complex version": (MACARON, put("model", "encoder.version", torch.tensor([2j])), "'encoder.version' is missing"),
    "not finite": (MACARON, put("model", FC1, torch.full((64, 32), torch.nan)), "has values that are not finite"),
    "unknown weight": (MACARON, put("model", "decoder.project_out_dim.weight", torch.ones(2)), "project_out_dim"),
    "own output table": (MACARON, put("model", "decoder.embed_out", torch.ones(50, 32)), "without shared embeddings"),
    "own target table": (
        MACARON,
        put("model", "decoder.embed_tokens.weight", torch.ones(50, 32)),
        "without shared embeddings",
    ),
    "no final norm": (MACARON, put("model", "encoder.version", torch.tensor([1.0])), "'encoder.version' is missing or"),
    "no version": (BERT, put("model", "encoder.version", None), "'encoder.version' is missing or"),
    "mixed norms": (MACARON, put("args", "decoder_normalize_before", False), "decoder_normalize_before differ"),
    "affine, says args": (BERT, put("args", "no_normalize_affine", False), "args.no_normalize_affine is False"),
    "heads": (MACARON, put("args", "encoder_attention_heads", 5), "args.decoder_attention_heads is 4"),
    "no heads": (MACARON, put("args", "encoder_attention_heads", None), "args.encoder_attention_heads should be"),
    "heads do not divide": (BERT, put("args", "encoder_attention_heads", 5), "does not divide the hidden size"),
    "width": (MACARON, put("args", "encoder_embed_dim", 64), "args.encoder_embed_dim is 64, but the weights say 32"),
    "decoder inner width": (MACARON, put("args", "decoder_ffn_embed_dim", 128), "args.decoder_ffn_embed_dim is 128"),
    "dropout": (MACARON, put("args", "dropout", 1.5), "args.dropout should be"),
    "endless dropout": (MACARON, put("args", "dropout", doubled(40)), "args.dropout should be"),
    "endless width": (MACARON, put("args", "encoder_embed_dim", doubled(40)), "encoder_embed_dim should be"),
    "language": (MACARON, put("args", "source_lang", "../x"), "args.source_lang is not a language code"),
    "learned positions": (MACARON, put("args", "encoder_learned_pos", True), "args.encoder_learned_pos is True"),
    "activation": (BERT, put("args", "act_fn", "swish"), "args.act_fn is 'swish'"),
    "untied words": (BERT, put("model", "embed_out", torch.ones(50, 32)), "without shared embeddings"),
    "no words": (BERT, put("model", "embed_out", None), "'embed_out' is missing"),
    "no segments": (BERT, put("model", "encoder.embed_segment.weight", None), "embed_segment.weight' is missing"),
    "criterion": (CLASSIFIER, put("args", "criterion", "hinge"), "args.criterion is 'hinge'"),
    "outputs": (CLASSIFIER, put("args", "criterion", "mean_squared_error"), "one output, but the classifier has 3"),
    "classes": (CLASSIFIER, put("args", "n_classes", 2), "args.n_classes is 2, but the weights say 3"),
    "no head": (CLASSIFIER, drop("classifier"), "not a translation model, BERT or classifier"),
}


@pytest.mark.parametrize("case", CASES)
def test_no_model_of_the_authors(case: str, golden: Path, tmp_path: Path):
    name, change, message = CASES[case]
    read = read_checkpoint(golden / name / "checkpoint_min.pt")
    change(read.args, read.tensors)
    save(read, tmp_path / "changed.pt")
    dictionary = golden / ("dict.txt" if name == MACARON else "dict.bert.txt")
    with pytest.raises(MacaronError, match=message) as caught:
        convert_fairseq(tmp_path / "changed.pt", dictionary, tmp_path / "model")
    assert "changed.pt" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["changed.pt"]


def test_feed_forward_networks_of_other_widths(golden: Path, tmp_path: Path):
    read = read_checkpoint(golden / MACARON / "checkpoint_min.pt")
    read.args["decoder_ffn_embed_dim"] = 48
    for layer in range(2):
        at = f"decoder.layers.{layer}"
        read.tensors[f"{at}.fc1.weight"] = torch.ones(48, 32)
        read.tensors[f"{at}.fc1.bias"] = torch.ones(48)
        read.tensors[f"{at}.fc2.weight"] = torch.ones(32, 48)
    save(read, tmp_path / "changed.pt")
    with pytest.raises(MacaronError, match=r"encoder have widths \[64, 64\], those of the decoder \[64, 48\]"):
        convert_fairseq(tmp_path / "changed.pt", golden / "dict.txt", tmp_path / "model")


def test_another_vocabulary(golden: Path, tmp_path: Path):
    (tmp_path / "dict.txt").write_text((golden / "dict.txt").read_text() + "one_more 1\n")
    with pytest.raises(MacaronError, match=r"dict\.txt has 51 entries .* has 50 rows"):
        convert_fairseq(golden / MACARON / "checkpoint_min.pt", tmp_path / "dict.txt", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_folders_that_are_taken(golden: Path, tmp_path: Path):
    checkpoint, dictionary, out = golden / MACARON / "checkpoint_min.pt", golden / "dict.txt", tmp_path / "model"
    out.mkdir()
    convert_fairseq(checkpoint, dictionary, out)  # an empty one is as good as none
    with pytest.raises(MacaronError, match="not empty"):
        convert_fairseq(checkpoint, dictionary, out)
    (out / "stale").touch()
    convert_fairseq(checkpoint, dictionary, out, force=True)
    assert not (out / "stale").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(MacaronError, match="not a model folder"):
        convert_fairseq(checkpoint, dictionary, tmp_path / "mine", force=True)
    with pytest.raises(MacaronError, match="is a file: give a folder"):
        convert_fairseq(checkpoint, dictionary, tmp_path / "mine" / "thesis.tex", force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "model"]


def test_nothing_is_left_of_a_failure(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MacaronTokenizer, "save_pretrained", full)
    with pytest.raises(MacaronError, match=r"No space.* Free some space"):
        convert_fairseq(golden / MACARON / "checkpoint_min.pt", golden / "dict.txt", tmp_path / "a" / "model")
    assert list((tmp_path / "a").iterdir()) == []


def test_an_old_folder_survives_a_failure(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("old")

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(MacaronTokenizer, "save_pretrained", fail)
    with pytest.raises(RuntimeError):
        convert_fairseq(golden / MACARON / "checkpoint_min.pt", golden / "dict.txt", tmp_path / "model", force=True)
    assert (tmp_path / "model" / "config.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_is_filled_meanwhile_is_not_replaced(golden: Path, tmp_path: Path, monkeypatch: Any):
    read = MacaronTokenizer.from_fairseq_dict

    def fill(*args: Any, **settings: Any) -> MacaronTokenizer:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "thesis.tex").touch()
        return read(*args, **settings)

    monkeypatch.setattr(MacaronTokenizer, "from_fairseq_dict", fill)
    with pytest.raises(MacaronError, match="not empty"):
        convert_fairseq(golden / MACARON / "checkpoint_min.pt", golden / "dict.txt", tmp_path / "model")
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["thesis.tex"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_files_can_be_read_by_others(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The permissions follow the umask, even if a library writes private files."""
    save = MacaronTokenizer.save_pretrained

    def private(self: MacaronTokenizer, folder: Path, **options: Any) -> Any:
        saved = save(self, folder, **options)
        (Path(folder) / "tokenizer.json").chmod(0o600)
        return saved

    monkeypatch.setattr(MacaronTokenizer, "save_pretrained", private)
    before = os.umask(0o027)
    try:
        convert_fairseq(golden / MACARON / "checkpoint_min.pt", golden / "dict.txt", tmp_path / "model")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()} == {0o640}
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o750


def test_command(golden: Path, tmp_path: Path):
    arguments = ["fairseq", str(golden / MACARON / "checkpoint_min.pt"), "--dict", str(golden / "dict.txt")]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "model")])
    assert result.exit_code == 0, result.output
    assert "translation: strang-gfg, pre-norm, 2+2 layers, hidden 32, 4 heads, inner 64+64" in result.output
    assert "61,504 parameters" in result.output
    assert str(tmp_path / "model") in result.output
    assert {path.name for path in (tmp_path / "model").iterdir()} == {
        "config.json",
        "digests.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_plain_text_by_moses_and_codes(golden: Path, tmp_path: Path):
    """A folder that takes plain text; languages come from the checkpoint unless given."""
    pieces = ["das", "gut", "w@@", "ort", "."]
    pieces += [f"filler{index}" for index in range(46 - len(pieces))]
    (tmp_path / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in pieces))
    merges = ["d a", "da s</w>", "g u", "gu t</w>", "o r", "or t</w>"]
    (tmp_path / "codes").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    arguments = ["fairseq", str(golden / MACARON / "checkpoint_min.pt"), "--dict", str(tmp_path / "dict.txt")]
    arguments += ["--bpe", str(tmp_path / "codes"), "--pipeline", "moses", "--out", str(tmp_path / "model")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert (tokenizer.source_lang, tokenizer.target_lang) == ("de", "en")
    ids = tokenizer("Das Wort.").input_ids
    assert ids == [4, 6, 7, 8, 2]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "das wort."


def test_ctrl_c(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Pressed while the folder is written: one line, the exit code of a signal, and nothing is left."""
    monkeypatch.setattr(MacaronTokenizer, "save_pretrained", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    arguments = ["convert", "fairseq", str(golden / MACARON / "checkpoint_min.pt"), "--dict", str(golden / "dict.txt")]
    monkeypatch.setattr(sys, "argv", ["macaron", *arguments, "--out", str(tmp_path / "model")])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130
    assert capsys.readouterr().err == "macaron: stopped by Ctrl-C\n"
    assert list(tmp_path.iterdir()) == []


def test_reading_needs_nothing_of_fairseq(golden: Path):
    read = read_checkpoint(golden / MACARON / "checkpoint_full_legacy.pt")
    assert read.args["arch"] == "transformer_iwslt_de_en_macaron_v2"
