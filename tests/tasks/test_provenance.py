"""Whatever is wrong with a setting, and whenever it is found: the message says where the setting was given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).parents[1] / "compatibility" / "fixtures"
TRAIN = "[train]\n"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FIXTURES)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("pairs", "train.device", "'cuda'"),  # found by the trainer, where there is no GPU
        ("pairs", "train.row_tokens", "2"),  # found when the pairs are counted
        ("pairs", "model.vocab_size", "9"),  # found when the data is known
        ("pairs", "data.out", "'text-data'"),  # of the other kind
        ("pairs", "decode.max_length", "0"),
        ("pairs", "train.average", "1"),
        ("text", "pretrain.max_tokens", "4000"),
        ("text", "model.type_vocab_size", "1"),
    ],
)
@pytest.mark.parametrize("how", ["file", "set"])
def test_training(name: str, key: str, value: str, how: str, tmp_path: Path, macaron: Callable[..., Any]):
    import torch

    if torch.cuda.is_available() and key == "train.device":
        pytest.skip("nothing is wrong with it here")
    section, _, last = key.partition(".")
    text = (FIXTURES / f"{name}.toml").read_text()
    kept = [line for line in text.splitlines() if not line.startswith(f"{last} =")]
    kept += [] if f"[{section}]" in kept else [f"[{section}]"]
    at = kept.index(f"[{section}]") + 1
    given = ["--set", f"{key}={value}", "--set", "train.batching='pack'"]
    expected = f"--set {key}={value}: "
    if how == "file":
        kept.insert(at, f"{last} = {value}")
        given, expected = given[2:], f"{tmp_path / 'r.toml'}, line {at + 1}: "
    (tmp_path / "r.toml").write_text("\n".join(kept))
    done = macaron("train", tmp_path / "r.toml", "--out", tmp_path / "run", *given)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"macaron: {expected}"), done.stderr
    assert not (tmp_path / "run").exists()
