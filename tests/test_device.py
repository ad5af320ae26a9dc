"""Where PyTorch keeps what it has compiled."""

import os
from pathlib import Path

import pytest

from macaron.device import keep_compiled

NAME = "TORCHINDUCTOR_CACHE_DIR"


def test_compiled_layers_are_kept_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(NAME, "")  # so that it is restored
    monkeypatch.delenv(NAME)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_compiled()
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    assert Path(cache_dir()).is_relative_to(tmp_path / "macaron")
    assert Path(cache_dir()).is_dir()


def test_a_given_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(NAME, "/elsewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_compiled()
    assert os.environ[NAME] == "/elsewhere"


def test_a_cache_that_cannot_be_written_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(NAME, "")
    monkeypatch.delenv(NAME)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep_compiled()
    assert NAME not in os.environ
