"""The recipes that come with Macaron, in ``macaron/recipes``: found by name, listed, copied.

In the repository ``src/macaron/recipes`` is a link to ``recipes``, so there is one copy of each.
"""

import re
from difflib import get_close_matches
from pathlib import Path

from macaron.errors import MacaronError, UsageError
from macaron.files import write_text

FOLDER = Path(__file__).with_name("recipes")
_ENDING = ".toml"


def names() -> list[str]:
    """The names of the shipped recipes, without their ending."""
    return sorted(path.stem for path in FOLDER.glob(f"*{_ENDING}"))


def shipped(name: str | Path) -> Path:
    """The file of a shipped recipe, by its name with or without its ending; an unknown one is refused."""
    stem = str(name).removesuffix(_ENDING)
    if stem not in names():
        raise MacaronError(f"no recipe {str(name)!r} comes with Macaron{_hint(stem)}")
    return FOLDER / f"{stem}{_ENDING}"


def find(path: Path) -> Path:
    """The recipe that a user means: a file, with or without its ending, or by its name one that comes with Macaron.

    A file goes first: it may be an edited copy.
    """
    stem = str(path).removesuffix(_ENDING)
    for file in (path, Path(f"{stem}{_ENDING}")):
        if file.is_file():
            return file
    if stem in names():
        return shipped(stem)
    what = "is a folder, not a recipe" if path.is_dir() else "no such recipe"
    raise MacaronError(
        f"{path}: {what}. Give a TOML file, or the name of a recipe that comes with Macaron{_hint(stem)}"
    )


def title(name: str) -> str:
    """What a recipe is for: the first sentence of its first line."""
    with shipped(name).open(encoding="utf-8") as file:
        line = file.readline().removeprefix("# ").strip()
    return re.split(r"\.\s+(?=[A-Z])|[.:]$", line)[0]


def copy(name: str, to: Path | None = None) -> Path:
    """Copy a shipped recipe, to be edited; nothing is overwritten.

    :param to: a file, or a folder for it; default: a file of the recipe's name in the current folder
    """
    source = shipped(name)
    path = Path(source.name) if to is None else to / source.name if to.is_dir() else to
    if path.exists():
        raise UsageError(f"{path} exists: give another path, or remove it first")
    write_text(path, source.read_text(encoding="utf-8"))
    return path


def _hint(stem: str) -> str:
    """Near names, or all of them."""
    near = get_close_matches(Path(stem).name, names(), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else f": {', '.join(names())}"
