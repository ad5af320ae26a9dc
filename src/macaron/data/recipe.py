"""The ``[data]`` section of a recipe: which corpora, how they are cleaned, which vocabulary.

The shipped files in ``recipes/`` explain every key in their comments.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from macaron.data.prepared import KINDS
from macaron.errors import MacaronError
from macaron.settings import build, override, read_toml
from macaron.text.pipeline import State
from macaron.text.vocabulary import check_size

if TYPE_CHECKING:
    from macaron.data.documents_recipe import TextRecipe

#: How the text lies in a file: one sentence a line, ``<seg>`` elements, or TED's ``train.tags`` files.
Format = Literal["lines", "sgm", "ted"]
#: What counts as a training pair that is also in the valid or test set.
Overlap = Literal["none", "source", "pair"]

#: The sections of a recipe. All but the first are for training.
SECTIONS = ("data", "model", "train", "decode", "pretrain")
LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}")


@dataclass(frozen=True)
class ArchiveRecipe:
    """A tar or zip archive to fetch.

    :param name: what corpora call it
    :param urls: where it is; the next one is tried when one fails
    :param checksum: ``sha256:...`` or ``md5:...``; without one, what the first download gave is recorded
    """

    name: str
    urls: tuple[str, ...]
    checksum: str | None = None

    def __post_init__(self) -> None:
        if not self.urls:
            raise MacaronError(f"archive {self.name!r} needs at least one url")
        check_checksum(self.checksum, f"archive {self.name!r}")

    @property
    def file_name(self) -> str:
        """The name of the file in the folder of downloads."""
        return self.urls[0].rpartition("/")[2]


@dataclass(frozen=True)
class CorpusRecipe:
    """Two files that are aligned line by line: ``PATH.de`` and ``PATH.en``, plain, ``.gz`` or ``.xz``.

    :param path: prefix of the files, relative to the recipe's `root`
    :param state: ``raw`` for plain text, ``moses`` if it is tokenised and escaped already
    :param url: where the two files are, with ``{lang}`` in it, if they are not here
    :param checksums: of the two files, by language
    :param archive: name of the archive that has them
    :param source: file in the archive with the source side
    :param target: file in the archive with the target side
    :param format: how the text lies in the archive's files
    :param replace: strings to replace while the text is taken out of the archive
    """

    path: str
    state: State = "raw"
    url: str | None = None
    checksums: dict[str, str] = field(default_factory=dict)
    archive: str | None = None
    source: str | None = None
    target: str | None = None
    format: Format = "lines"
    replace: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.path:
            raise MacaronError("a corpus needs a path: the prefix of its two files")
        if self.url is not None and (self.archive is not None or "{lang}" not in self.url):
            raise MacaronError(f"{self.path}: url must contain {{lang}}; give either url or archive")
        if self.archive is not None and (self.source is None or self.target is None):
            raise MacaronError(f"{self.path}: say which files of archive {self.archive!r} are its source and target")
        for checksum in self.checksums.values():
            check_checksum(checksum, self.path)


@dataclass(frozen=True)
class DataRecipe:
    """Everything that decides what a prepared folder holds.

    :param source_lang: language to translate from; the ending of its files
    :param target_lang: language to translate into
    :param out: the folder to write
    :param train: corpora to train on
    :param valid: corpora to validate on
    :param test: corpora to test on
    :param root: folder that the corpora's paths start from
    :param downloads: folder for archives; by default ``downloads`` in `root`
    :param archives: archives that corpora are taken from
    :param pipeline: ``raw`` (cased plain text) or ``moses`` (normalised, tokenised, lower-cased)
    :param lower: lower-case; for ``moses``
    :param normalize: normalise punctuation; for ``moses``
    :param vocab_size: size of the joint subword vocabulary
    :param vocab_multiple: the vocabulary is padded to a multiple of this
    :param min_words: drop pairs with fewer words on a side
    :param max_words: drop pairs with more words on a side
    :param max_ratio: drop pairs whose longer side has more than ``max_ratio + ratio_slack / shorter`` times ...
    :param ratio_slack: ... the words of the shorter one; 0 drops nothing by ratio if `max_ratio` is 0, too
    :param remove_duplicates: keep the first of equal pairs only
    :param remove_overlap: drop training pairs that share their ``source`` (or the whole ``pair``) with valid or test
    :param valid_every: validate on every so manieth training pair (0: on the corpora of `valid`)
    """

    source_lang: str
    target_lang: str
    out: Path
    train: tuple[CorpusRecipe, ...]
    valid: tuple[CorpusRecipe, ...] = ()
    test: tuple[CorpusRecipe, ...] = ()
    root: Path = Path()
    downloads: Path | None = None
    archives: tuple[ArchiveRecipe, ...] = ()
    pipeline: Literal["raw", "moses"] = "raw"
    lower: bool = True
    normalize: bool = True
    vocab_size: int = 10_000
    vocab_multiple: int = 8
    min_words: int = 1
    max_words: int = 175
    max_ratio: float = 1.5
    ratio_slack: float = 5.0
    remove_duplicates: bool = True
    remove_overlap: Overlap = "source"
    valid_every: int = 0

    def __post_init__(self) -> None:
        for key in ("source_lang", "target_lang"):
            if not LANGUAGE.fullmatch(getattr(self, key)):
                raise MacaronError(f"data.{key} = {getattr(self, key)!r} is no language code such as 'de'")
        if self.source_lang == self.target_lang:
            raise MacaronError("data.source_lang and data.target_lang are the same: the two files would be one")
        if not self.train:
            raise MacaronError("data.train is empty: give at least one corpus to train on")
        if self.valid and self.valid_every:
            raise MacaronError("give either data.valid or data.valid_every, not both")
        if self.valid_every == 1 or self.valid_every < 0:
            raise MacaronError("data.valid_every must be at least 2 (or 0): something must be left to train on")
        if not 0 <= self.min_words <= self.max_words or self.max_words < 1:
            raise MacaronError("data.min_words and data.max_words must satisfy 0 <= min_words <= max_words >= 1")
        if self.max_ratio < 0 or self.ratio_slack < 0:
            raise MacaronError("data.max_ratio and data.ratio_slack must not be negative")
        if self.vocab_multiple < 1:
            raise MacaronError("data.vocab_multiple must be positive")
        try:
            check_size(self.vocab_size, self.pipeline == "raw")
        except MacaronError as error:
            raise MacaronError(f"data.vocab_size: {error}") from error
        self._check_states()
        self._check_archives()

    def _check_states(self) -> None:
        for split in ("train", "valid", "test"):
            corpora: tuple[CorpusRecipe, ...] = getattr(self, split)
            states = {corpus.state for corpus in corpora}
            if "moses" in states and self.pipeline == "raw":
                raise MacaronError(
                    f"data.{split}: the raw pipeline takes plain text, but {corpora[0].path} has state 'moses'. "
                    "Choose pipeline 'moses', or detokenise the corpus."
                )
            # Mixed text could not be scored: one reference would be plain, the next tokenised.
            if len(states) > 1 and (split != "train" or self.valid_every):
                raise MacaronError(f"data.{split}: corpora of different state cannot be scored together; split them")

    def _check_archives(self) -> None:
        names = [archive.name for archive in self.archives]
        if len(set(names)) < len(names):
            raise MacaronError("data.archives: two archives have the same name")
        for corpus in (*self.train, *self.valid, *self.test):
            if corpus.archive is not None and corpus.archive not in names:
                raise MacaronError(f"{corpus.path}: there is no archive {corpus.archive!r} in data.archives")
            unknown = set(corpus.checksums) - {self.source_lang, self.target_lang}
            if unknown:
                raise MacaronError(
                    f"{corpus.path}: checksums for {', '.join(sorted(unknown))}, which is no language here"
                )

    @property
    def downloads_folder(self) -> Path:
        """Where archives are kept."""
        return self.downloads if self.downloads is not None else self.root / "downloads"


def data_recipe(content: Mapping[str, Any], where: str = "") -> "DataRecipe | TextRecipe":
    """Build the ``[data]`` section of a recipe's contents; the other sections are left to those who train.

    What it holds decides its class: ``kind = "text"`` is plain text, anything else pairs to translate.
    """
    # Here, for it builds upon this module.
    from macaron.data.documents_recipe import TextOnly, TextRecipe

    place = f"{where}: " if where else ""
    data = content.get("data", {})
    kind = data.get("kind", "pairs") if isinstance(data, Mapping) else "pairs"
    if kind not in KINDS:
        raise MacaronError(f"{place}data.kind must be one of {', '.join(map(repr, KINDS))}, not {kind!r}")
    recipe = TextRecipe if kind == "text" else DataRecipe
    for name in content:
        if name not in SECTIONS:
            meant = f"write it as data.{name}" if name in recipe.__dataclass_fields__ else "no such section"
            raise MacaronError(f"{place}{name!r} stands outside the sections: {meant}")
    if "data" not in content:
        raise MacaronError(f"{place}there is no [data] section in this recipe")
    # Built with the whole recipe's keys, so that a message says "data.vocab_size".
    if kind == "text":
        return build(TextOnly, {"data": data}, where).data
    if isinstance(data, Mapping):
        data = {key: value for key, value in data.items() if key != "kind"}
    return build(_DataOnly, {"data": data}, where).data


def load_data_recipe(path: Path, assignments: Sequence[str] = ()) -> "DataRecipe | TextRecipe":
    """Read the ``[data]`` section of a recipe file, with ``data.key=value`` assignments applied."""
    return data_recipe(override(read_toml(path), assignments), str(path))


def check_checksum(checksum: str | None, where: str) -> None:
    """Refuse what is no checksum."""
    if checksum is not None and not _CHECKSUM.fullmatch(checksum):
        raise MacaronError(f"{where}: write a checksum as 'sha256:' and 64 digits 0-f, or 'md5:' and 32")


@dataclass(frozen=True)
class _DataOnly:
    data: DataRecipe
