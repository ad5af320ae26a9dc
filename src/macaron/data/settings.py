"""The ``[data]`` section of a recipe: which corpora, how they are cleaned, which vocabulary.

The files in ``recipes/`` explain every key in their comments.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from macaron.data.prepared import SPLITS, DataKind
from macaron.errors import MacaronError, require
from macaron.text.pipeline import State
from macaron.text.vocabulary import TokenizerKind, check_size

#: The layout of an archive's files: one sentence per line, ``<seg>`` elements, or TED's ``train.tags`` files.
ArchiveFormat = Literal["lines", "sgm", "ted"]

_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}")


def _check_checksum(checksum: str | None, where: str) -> None:
    right = checksum is None or _CHECKSUM.fullmatch(checksum) is not None
    require(right, f"{where}: write a checksum as 'sha256:' and 64 digits 0-f, or 'md5:' and 32")


def file_name(urls: Sequence[str]) -> str:
    """The name of a file in the folder of downloads."""
    return urlsplit(urls[0]).path.rpartition("/")[2]


@dataclass(frozen=True)
class ArchiveSettings:
    """A tar or zip archive to fetch.

    :param name: what corpora call it
    :param urls: its addresses; the next one is tried when one fails
    :param checksum: ``sha256:...`` or ``md5:...``; without one, that of the first download is recorded
    """

    name: str
    urls: tuple[str, ...]
    checksum: str | None = None

    def __post_init__(self) -> None:
        require(bool(self.urls), f"archive {self.name!r} needs at least one url")
        _check_checksum(self.checksum, f"archive {self.name!r}")


@dataclass(frozen=True)
class FetchSettings:
    """A file to fetch if it is missing; `urls` and `checksum` as for an archive.

    :param path: its path, relative to the recipe's `root`
    """

    path: str
    urls: tuple[str, ...]
    checksum: str | None = None

    def __post_init__(self) -> None:
        require(bool(self.path and self.urls), f"{self.path or 'a file to fetch'!r} needs a path and at least one url")
        _check_checksum(self.checksum, self.path)


@dataclass(frozen=True)
class WikipediaSettings(FetchSettings):
    """A dump of Wikipedia, ``...-pages-articles.xml.bz2``, whose text is written to `path`.

    :param min_words: leave out articles with fewer words: stubs, lists, disambiguations
    """

    min_words: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            not self.path.endswith(".xz"), f"{self.path}: the text of a dump is written plain or as .gz: name it so"
        )
        require(self.min_words >= 0, f"{self.path}: min_words must not be negative")


@dataclass(frozen=True)
class CorpusSettings:
    """Two files that are aligned line by line: ``PATH.de`` and ``PATH.en``, plain, ``.gz`` or ``.xz``.

    :param path: prefix of the files, relative to the recipe's `root`
    :param state: ``raw`` for plain text, ``moses`` if it is tokenised and escaped already
    :param url: the address of the two files, with ``{lang}`` in it, if they are to be fetched
    :param checksums: of the two files, by language
    :param archive: name of the archive that has them
    :param source: file in the archive with the source side
    :param target: file in the archive with the target side
    :param format: layout of the archive's files
    :param replace: strings to replace while the text is extracted from the archive
    """

    path: str
    state: State = "raw"
    url: str | None = None
    checksums: dict[str, str] = field(default_factory=dict)
    archive: str | None = None
    source: str | None = None
    target: str | None = None
    format: ArchiveFormat = "lines"
    replace: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require(self.path != "", "a corpus needs a path: the prefix of its two files")
        one_origin = self.url is None or (self.archive is None and "{lang}" in self.url)
        require(one_origin, f"{self.path}: url must contain {{lang}}; give either url or archive")
        files_named = self.archive is None or None not in (self.source, self.target)
        require(files_named, f"{self.path}: say which files of archive {self.archive!r} are its source and target")
        for checksum in self.checksums.values():
            _check_checksum(checksum, self.path)


@dataclass(frozen=True)
class TextFileSettings:
    """Files of plain text: one paragraph per line, a blank line between documents; plain, ``.gz`` or ``.xz``.

    :param path: a file, or a pattern such as ``wiki-*.txt.xz``, relative to the recipe's `root`
    :param state: ``raw`` for plain text, ``moses`` if it is tokenised and escaped already
    """

    path: str
    state: State = "raw"

    def __post_init__(self) -> None:
        require(self.path != "", "a text needs a path: a file, or a pattern such as 'wiki-*.txt.xz'")


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The settings that pairs and documents share.

    :param out: the folder to write
    :param root: folder that all paths are relative to
    :param downloads: folder for archives and dumps; by default ``downloads`` in `root`
    :param pipeline: ``raw`` (cased plain text) or ``moses`` (normalised, tokenised, lower-cased)
    :param lower: lower-case; for ``moses``
    :param normalize: normalise punctuation; for ``moses``
    :param vocab_size: size of the subword vocabulary, joint for both languages; ``auto``: by the size of the corpus
    :param vocab_multiple: the vocabulary is padded to a multiple of this
    :param max_words: drop pairs or sentences with more words
    :param valid_every: validate on every Nth pair or document (pairs, 0: on the corpora of `valid`)
    """

    kind: ClassVar[DataKind]
    vocabulary: ClassVar[TokenizerKind]

    out: Path
    train: tuple[CorpusSettings | TextFileSettings, ...]
    root: Path = Path()
    downloads: Path | None = None
    pipeline: Literal["raw", "moses"] = "raw"
    lower: bool = True
    normalize: bool = True
    vocab_size: Literal["auto"] | int = "auto"
    vocab_multiple: int = 8
    max_words: int = 175
    valid_every: int = 0

    def __post_init__(self) -> None:
        for key in ("source_lang", "target_lang", "lang"):
            language = getattr(self, key, "en")
            known = _LANGUAGE.fullmatch(language) is not None
            require(known, f"data.{key} = {language!r} is not a language code (expected e.g. 'de')")
        require(self.train != (), "data.train is empty: give at least one corpus to train on")
        for key in ("max_words", "vocab_multiple"):
            require(getattr(self, key) >= 1, f"data.{key} must be above 0, not {getattr(self, key)}")
        try:
            if self.vocab_size != "auto":
                check_size(self.vocab_size, self.pipeline == "raw", self.vocabulary)
        except MacaronError as error:
            raise MacaronError(f"data.vocab_size: {error}") from error
        for split in SPLITS:
            for corpus in getattr(self, split, ()):
                require(
                    self.pipeline == "moses" or corpus.state == "raw",
                    f"data.{split}: the raw pipeline takes plain text, but {corpus.path} has state 'moses'. "
                    "Choose pipeline 'moses', or detokenise the text.",
                )

    @property
    def downloads_folder(self) -> Path:
        """The folder of archives and dumps."""
        return self.downloads if self.downloads is not None else self.root / "downloads"


@dataclass(frozen=True, kw_only=True)
class PairsSettings(DataSettings):
    """Everything that decides what a prepared folder of sentence pairs holds.

    :param source_lang: language to translate from; the ending of its files
    :param target_lang: language to translate into
    :param train: corpora to train on
    :param valid: corpora to validate on
    :param test: corpora to test on
    :param archives: archives that corpora are extracted from
    :param min_words: drop pairs with fewer words on a side
    :param max_ratio: drop pairs whose longer side has more than ``max_ratio + ratio_slack / shorter`` times ...
    :param ratio_slack: ... the words of the shorter one; if both are 0, nothing is dropped by ratio
    :param remove_duplicates: keep only the first of equal pairs
    :param remove_overlap: drop training pairs that share their ``source`` (or the whole ``pair``) with valid or test
    """

    kind: ClassVar[DataKind] = "pairs"
    vocabulary: ClassVar[TokenizerKind] = "translation"

    source_lang: str
    target_lang: str
    train: tuple[CorpusSettings, ...]
    valid: tuple[CorpusSettings, ...] = ()
    test: tuple[CorpusSettings, ...] = ()
    archives: tuple[ArchiveSettings, ...] = ()
    min_words: int = 1
    max_ratio: float = 1.5
    ratio_slack: float = 5.0
    remove_duplicates: bool = True
    remove_overlap: Literal["none", "source", "pair"] = "source"

    def __post_init__(self) -> None:
        super().__post_init__()
        differ = self.source_lang != self.target_lang
        require(differ, "data.source_lang and data.target_lang are the same: the two files would be one")
        require(not (self.valid and self.valid_every), "give either data.valid or data.valid_every, not both")
        some_left = self.valid_every >= 2 or self.valid_every == 0
        require(some_left, "data.valid_every must be at least 2 (or 0): something must be left to train on")
        ordered = 0 <= self.min_words <= self.max_words
        require(ordered, "data.min_words and data.max_words must satisfy 0 <= min_words <= max_words")
        for key in ("max_ratio", "ratio_slack"):
            require(getattr(self, key) >= 0, f"data.{key} must not be negative")
        for split in SPLITS:
            # Mixed text could not be scored: one reference would be plain, the next tokenised.
            states = {corpus.state for corpus in getattr(self, split)}
            fits = len(states) < 2 or (split == "train" and not self.valid_every)
            require(fits, f"data.{split}: corpora of different state cannot be scored together; split them")
        names = {archive.name for archive in self.archives}
        require(len(names) == len(self.archives), "data.archives: two archives have the same name")
        for corpus in (*self.train, *self.valid, *self.test):
            named = corpus.archive is None or corpus.archive in names
            require(named, f"{corpus.path}: there is no archive {corpus.archive!r} in data.archives")
            unknown = sorted(set(corpus.checksums) - set(self.languages))
            require(not unknown, f"{corpus.path}: checksums for {', '.join(unknown)}, not a language here")

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return self.source_lang, self.target_lang


@dataclass(frozen=True, kw_only=True)
class TextSettings(DataSettings):
    """Everything that decides what a prepared folder of documents holds: ``kind = "text"``.

    :param train: the texts; a part of their documents is held out to validate on
    :param fetch: files to fetch
    :param wikipedia: dumps to fetch and to extract the text from
    :param lang: language, for the rules by which sentences and (``moses``) words are split
    """

    kind: ClassVar[DataKind] = "text"
    vocabulary: ClassVar[TokenizerKind] = "encoder"

    train: tuple[TextFileSettings, ...]
    fetch: tuple[FetchSettings, ...] = ()
    wikipedia: tuple[WikipediaSettings, ...] = ()
    lang: str = "en"
    max_words: int = 500
    valid_every: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.valid_every >= 2, "data.valid_every must be at least 2: something must be left to train on")
        paths = [item.path for item in (*self.fetch, *self.wikipedia)]
        require(len(set(paths)) == len(paths), "data.fetch and data.wikipedia: two files have the same path")

    @property
    def languages(self) -> tuple[str, str]:
        """The language, as both sides."""
        return self.lang, self.lang
