"""The recorded models, converted once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from macaron.convert import convert_fairseq

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def dictionary_of(name: str) -> Path:
    return GOLDEN / ("dict.txt" if name.startswith("tiny") else "dict.bert.txt")


@pytest.fixture(scope="session")
def golden() -> Path:
    """Checkpoints and numbers recorded from the authors' code."""
    return GOLDEN


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The model folder of a recorded model."""
    folders: dict[str, Path] = {}

    def convert(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("converted") / name
            convert_fairseq(GOLDEN / name / "checkpoint_min.pt", dictionary_of(name), folders[name])
        return folders[name]

    return convert
