"""What comes with Macaron: the recipes, found by name, listed, copied; and the demo's corpus.

The corpus is 100,000 German-English pairs from a grammar, see ``tools/make_demo_corpus.py``. Sentences of the split
``novel`` combine words and constructions that the others never combine.
"""

import re
from functools import cache
from pathlib import Path

from macaron.errors import MacaronError, UsageError, nearest
from macaron.files import atomic_folder, write_text

FOLDER = Path(__file__).with_name("recipes")
ARCHIVE = Path(__file__).parent / "data" / "demo_corpus.tar.bz2"
_SPLITS = ("train", "valid", "test", "novel")
FILES = tuple(f"{split}.{language}" for split in _SPLITS for language in ("de", "en"))
#: The ending of a file of the baseline.
BASELINE = ".word-by-word"


def names() -> list[str]:
    """The names of the shipped recipes, without their ending."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def shipped(name: str | Path) -> Path:
    """The file of a shipped recipe, by its name with or without its ending; an unknown one is refused."""
    stem = str(name).removesuffix(".toml")
    if stem not in names():
        raise MacaronError(f"no recipe {str(name)!r} comes with Macaron{nearest(stem, names())}")
    return FOLDER / f"{stem}.toml"


def find(path: Path) -> Path:
    """The recipe that a user means: a file, which may be an edited copy, or by its name one that comes with Macaron."""
    stem = str(path).removesuffix(".toml")
    for file in (path, Path(f"{stem}.toml")):
        if file.is_file():
            return file
    if stem in names():
        return shipped(stem)
    what = "is a folder, not a recipe" if path.is_dir() else "no such recipe"
    hint = nearest(Path(stem).name, names())
    raise MacaronError(f"{path}: {what}. Give a TOML file, or the name of a recipe that comes with Macaron{hint}")


def title(name: str) -> str:
    """What a recipe is for: the first sentence of its first line."""
    with shipped(name).open(encoding="utf-8") as file:
        line = file.readline().removeprefix("# ").strip()
    return re.split(r"\.\s+(?=[A-Z])|[.:]$", line)[0]


def copy(name: str, to: Path | None = None) -> Path:
    """Copy a shipped recipe, to be edited; nothing is overwritten."""
    source = shipped(name)
    path = Path(source.name) if to is None else to / source.name if to.is_dir() else to
    if path.exists():
        raise UsageError(f"{path} exists: give another path, or remove it first")
    write_text(path, source.read_text(encoding="utf-8"))
    return path


def write_demo_corpus(folder: Path) -> bool:
    """Write the corpus as train.de ... into a folder of its own; False if it, or its first lines, were there."""
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if foreign := sorted(found - set(FILES)):
        raise MacaronError(f"{folder} also holds other files ({foreign[0]}): give the corpus a folder of its own")
    corpus = {name: _contents()[name] for name in FILES}
    if found == set(FILES):
        texts = {name: (folder / name).read_bytes() for name in FILES}
        aligned = all(texts[f"{split}.de"].count(b"\n") == texts[f"{split}.en"].count(b"\n") for split in _SPLITS)
        if not aligned or not all(corpus[name].startswith(texts[name]) for name in FILES):
            raise MacaronError(f"{folder} is not the demo corpus of this version: remove it, or give another folder")
        return False
    with atomic_folder(folder) as partial:
        for name, content in corpus.items():
            (partial / name).write_bytes(content)
    return True


def word_by_word(split: str) -> list[str]:
    """The baseline's translations of ``test`` or ``novel``, made by ``tools/demo_grammar/baseline.py``."""
    return _contents()[split + BASELINE].decode().splitlines()


@cache
def _contents() -> dict[str, bytes]:
    """The files of the archive by name, kept in memory (10 MB): decompressing them takes a second."""
    import tarfile  # late: recipes do without it

    with tarfile.open(ARCHIVE) as archive:
        return {member.name: file.read() for member in archive if (file := archive.extractfile(member))}
