"""Sizes of the package and its files, what only one room may do, and the number of files on the two main paths."""

import ast
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "macaron"
FIXTURES = REPOSITORY / "tests" / "compatibility" / "fixtures"


FILES = sorted(SOURCE.rglob("*.py"))


def lines(paths: Iterator[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def test_lines_of_python():
    """The budget of the package with everything that is planned for it."""
    assert lines(SOURCE.rglob("*.py")) <= 31_000


def test_lines_of_scripts_and_styles():
    assert lines(path for path in SOURCE.rglob("*") if path.suffix in (".js", ".css")) <= 1_900


def test_files_have_60_to_400_lines():
    sizes = {path.relative_to(SOURCE): lines(iter([path])) for path in SOURCE.rglob("*.py")}
    aside = {path for path in sizes if path.name in ("__init__.py", "__main__.py") or path.parts[0] == "cli"}
    wrong = [f"{path}: {size}" for path, size in sizes.items() if path not in aside and not 60 <= size <= 400]
    assert not wrong, "\n".join(wrong)


def test_test_files_have_at_most_400_lines():
    sizes = {str(path.relative_to(REPOSITORY)): lines(iter([path])) for path in (REPOSITORY / "tests").rglob("*.py")}
    wrong = [f"{path}: {size}" for path, size in sizes.items() if size > 400]
    assert not wrong, "\n".join(wrong)


def test_transformers_is_imported_by_its_own_room_only():
    wrong = []
    for path in FILES:
        if path.relative_to(SOURCE).parts[0] == "huggingface":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] in ("transformers", "huggingface_hub") for name in names):
                wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


def test_no_class_is_exchanged():
    """No object changes its class after it was made."""
    wrong = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "__class__" and isinstance(node.ctx, ast.Store)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_two_classes_have_one_name():
    """A public name means one thing in the whole package."""
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    wrong = [f"{name}: {', '.join(found)}" for name, found in homes.items() if len(found) > 1]
    assert not wrong, "\n".join(wrong)


@contextmanager
def profiled(profile: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Call a function at every call and return, in this thread and in new ones."""
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def counted(code_files: set[str]) -> list[str]:
    """Our files among those entered, ``nn`` and ``models`` aside: their number is the network's, not the path's."""
    ours = (Path(name) for name in code_files if Path(name).is_relative_to(SOURCE))
    names = sorted(str(path.relative_to(SOURCE)) for path in ours)
    return [name for name in names if not name.startswith(("nn/", "models/"))]


@pytest.mark.parametrize(("whole", "most"), [(True, 9), (False, 12)], ids=["a line", "text"])
def test_files_entered_by_translating_one_sentence(whole: bool, most: int):
    """A line as evaluation translates it; text, which may be several sentences, is split first."""
    from macaron.decode import Translator

    translator = Translator(FIXTURES / "translation", device="cpu")
    sentence = (FIXTURES / "corpus" / "train.de").read_text(encoding="utf-8").splitlines()[3]
    translator.translate([sentence], one_per_line=whole)  # what is made once belongs to loading
    entered: set[str] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    with profiled(profile):
        assert translator.translate([sentence], one_per_line=whole) == ["Martin washed your cat."]
    files = counted(entered)
    assert len(files) <= most, "\n".join(files)


def test_files_entered_by_one_update(tmp_path: Path, macaron: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(FIXTURES)
    updates: list[set[str]] = [set()]

    def profile(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call":
            updates[-1].add(name)
        elif (
            event == "return"
            and frame.f_code.co_name == "step"
            and Path(name).parts[-3:-1] == ("torch", "optim")
            and "adam" in name
        ):
            updates.append(set())

    rare = [f"--set=train.{key}=1000" for key in ("log_every", "validate_every", "checkpoint_every")]
    with profiled(profile):
        done = macaron("train", "pairs.toml", "--out", tmp_path / "run", "--set=train.max_updates=8", *rare)
    assert done.returncode == 0, done.stderr
    assert len(updates) == 9
    # From one step of the optimiser to the next, warmed up, and long before the end.
    files = counted(updates[5])
    assert any(name.startswith("train/") for name in files)
    assert len(files) <= 12, "\n".join(files)
