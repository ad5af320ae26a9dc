"""transformers writes and verifies digests as we do: saved, saved over, read, uploaded."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

import macaron  # noqa: F401  (registers the Auto classes)
from macaron.decode import Translator
from macaron.errors import MacaronError
from macaron.huggingface import HFTokenizer, HFTranslationModel
from macaron.seal import damaged, recorded

FIXTURES = Path(__file__).parents[1] / "compatibility" / "fixtures"


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder of an earlier version, without digests, that transformers has read and saved."""
    folder = tmp_path / "saved"
    AutoModelForSeq2SeqLM.from_pretrained(FIXTURES / "translation").save_pretrained(folder)
    AutoTokenizer.from_pretrained(FIXTURES / "translation").save_pretrained(folder)
    return folder


def test_what_transformers_saves_is_recorded_and_verified(saved: Path):
    files = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert set(recorded(saved) or {}) == files
    Translator(saved, device="cpu")
    for name in sorted(files):
        flip(saved / name, -3)
        with pytest.raises(MacaronError, match=rf"{name}: damaged"):
            (HFTokenizer if name.startswith("tokenizer") else HFTranslationModel).from_pretrained(saved)
        flip(saved / name, -3)
    flip(saved / "model.safetensors", -3)
    with pytest.raises(MacaronError, match=r"model\.safetensors: damaged"):
        AutoModelForSeq2SeqLM.from_pretrained(saved)
    flip(saved / "model.safetensors", -3)
    AutoTokenizer.from_pretrained(saved)
    AutoModelForSeq2SeqLM.from_pretrained(saved)


def test_saving_over_a_folder(saved: Path, tmp_path: Path):
    (saved / "README.md").write_text("# A model card")
    (saved / "trainer_state.json").write_text("{}")
    model = AutoModelForSeq2SeqLM.from_pretrained(saved)
    model.generation_config.num_beams = 3
    model.save_pretrained(saved, max_shard_size="20KB")
    assert len(list(saved.glob("model-*.safetensors"))) > 1
    (saved / "model.safetensors").unlink()
    (saved / "trainer_state.json").write_text('{"epoch": 1}')  # the Trainer's own
    assert [name for name in damaged(saved) if name != "model.safetensors"] == []
    model.save_pretrained(saved, max_shard_size="20KB")
    AutoModelForSeq2SeqLM.from_pretrained(saved)
    copied = Path(shutil.copytree(saved, tmp_path / "copied", ignore=shutil.ignore_patterns("README.md")))
    assert Translator(copied, device="cpu").settings.beam == 3


def test_an_upload_has_the_digests_of_its_files(saved: Path, monkeypatch: pytest.MonkeyPatch):
    """``save_pretrained(push_to_hub=True)`` uploads before it returns."""
    uploaded: list[dict[str, Any]] = []

    def upload(_: Any, folder: Path, repository: str) -> None:
        assert not damaged(Path(folder))
        uploaded.append(json.loads((Path(folder) / "digests.json").read_text()))

    monkeypatch.setattr(PreTrainedModel, "_upload_modified_files", upload)
    model = AutoModelForSeq2SeqLM.from_pretrained(saved)
    flip(saved / "model.safetensors", -1)  # new weights, of which digests.json knows nothing yet
    model._upload_modified_files(saved, "me/model")
    assert len(uploaded) == 1
