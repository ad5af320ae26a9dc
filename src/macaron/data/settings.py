"""The ``[data]`` section of a recipe: which corpora, files to fetch, how they are cleaned, which vocabulary.

Two recipes are the manual, with a comment for every key: ``recipes/your-own.toml`` for pairs of sentences and
``recipes/wikipedia-books.toml`` for documents.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from macaron.data.prepared import SPLITS, DataKind
from macaron.errors import naming, require
from macaron.json_files import Count
from macaron.limits import LARGEST_VOCABULARY, LONGEST_TEXT, Between
from macaron.settings import check_fields
from macaron.text.pipeline import LANGUAGE, PipelineName, State
from macaron.text.vocabulary import TokenizerKind, check_size, check_tag

#: The layout of an archive's files: one sentence per line, ``<seg>`` elements, or TED's ``train.tags`` files.
ArchiveFormat = Literal["lines", "sgm", "ted"]

#: Pairs to validate on, about, where the recipe names none; but at most every `LEAST_EVERY`-th pair.
HELD_OUT, LEAST_EVERY = 1_500, 20

#: The first heading of an article of WikiText: `` = Title = ``.
HEADING = re.compile(r"\s*= [^=].* =\s*")
WordLimit = Annotated[int, Between(1, LONGEST_TEXT)]
_CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}")


def check_download(where: str, urls: Sequence[str], *checksums: str | None) -> None:
    """Refuse addresses that are none, a first one that does not name a file, and what is not written as a checksum."""
    require(len(urls) > 0, f"{where!r} needs at least one url")
    try:
        named = all(urlsplit(url).path for url in urls) and file_name(urls) not in ("", ".", "..")
    except ValueError:
        named = False
    require(named, f"{where}: {', '.join(urls)[:200]!r} is not the address of a file")
    right = all(_CHECKSUM.fullmatch(checksum) for checksum in checksums if checksum is not None)
    require(right, f"{where}: write a checksum as 'sha256:' and 64 digits 0-f, or 'md5:' and 32")


def file_name(urls: Sequence[str]) -> str:
    """The name of a file in the folder of downloads."""
    return urlsplit(urls[0]).path.rpartition("/")[2]


@dataclass(frozen=True)
class ArchiveSettings:
    """A tar or zip archive to fetch, by the name that corpora call it.

    :param urls: its addresses; the next one is tried when one fails
    :param checksum: without one, that of the first download is recorded
    """

    name: str
    urls: tuple[str, ...]
    checksum: str | None = None

    def __post_init__(self) -> None:
        check_download(f"archive {self.name}", self.urls, self.checksum)


@dataclass(frozen=True)
class FetchSettings:
    """A file to fetch if it is missing; `urls` and `checksum` as for an archive, `path` below the recipe's `root`."""

    path: str
    urls: tuple[str, ...]
    checksum: str | None = None

    def __post_init__(self) -> None:
        require(self.path != "", "a file to fetch needs a path")
        check_download(self.path, self.urls, self.checksum)


@dataclass(frozen=True)
class WikipediaSettings(FetchSettings):
    """A dump of Wikipedia, ``...-pages-articles.xml.bz2``, whose text is written to `path`."""

    min_words: Count = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        written = not self.path.endswith(".xz")
        require(written, f"{self.path}: the text of a dump is written plain or as .gz: name it so")


@dataclass(frozen=True)
class CorpusSettings:
    """Two files that are aligned line by line: ``PATH.de`` and ``PATH.en``, plain, ``.gz`` or ``.xz``.

    :param url: the address of the two files, with ``{lang}`` in it, if they are to be fetched
    :param archive: name of the archive that has them, as its files ``source`` and ``target``
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
    weight: float = 1.0
    tag: str | None = None

    def __post_init__(self) -> None:
        require(self.path != "", "a corpus needs a path: the prefix of its two files")
        one_origin = self.url is None or (self.archive is None and "{lang}" in self.url)
        require(one_origin, f"{self.path}: url must contain {{lang}}; give either url or archive")
        if self.url is not None:
            check_download(self.path, (self.url,), *self.checksums.values())
        require("" not in self.replace, f"{self.path}: replace cannot replace an empty string")
        files_named = self.archive is None or None not in (self.source, self.target)
        require(files_named, f"{self.path}: say which files of archive {self.archive!r} are its source and target")
        require(0 < self.weight <= 1000, f"{self.path}: weight must be above 0 and at most 1000, not {self.weight:g}")
        if self.tag is not None:
            check_tag(self.tag, f"{self.path}: ")


@dataclass(frozen=True)
class TextFileSettings:
    """Files of plain text, by name or pattern: one paragraph per line, a blank line between documents."""

    path: str
    state: State = "raw"

    def __post_init__(self) -> None:
        require(self.path != "", "a text needs a path: a file, or a pattern such as 'wiki-*.txt.xz'")


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The settings that pairs and documents share."""

    kind: ClassVar[DataKind]
    vocabulary: ClassVar[TokenizerKind]

    out: Path
    train: tuple[CorpusSettings | TextFileSettings, ...]
    root: Path = Path()
    downloads: Path | None = None
    pipeline: PipelineName = "raw"
    lower: bool = True
    normalize: bool = True
    vocab_size: Literal["auto"] | Annotated[int, Between(1, LARGEST_VOCABULARY)] = "auto"
    vocab_multiple: Annotated[int, Between(1, 1 << 16)] = 8
    tokenizer: Path | None = None
    extend_vocab: Annotated[int, Between(0, LARGEST_VOCABULARY)] | None = None
    max_words: WordLimit = 175
    valid_every: Count | None = None  # 0: nothing is held out

    def __post_init__(self) -> None:
        check_fields(self)
        for key in ("source_lang", "target_lang", "lang"):
            language = getattr(self, key, "en")
            known = LANGUAGE.fullmatch(language) is not None
            require(known, f"data.{key} = {language!r} is not a language code (expected e.g. 'de')")
        require(self.train != (), "data.train is empty: give at least one corpus to train on")
        known = self.pipeline != "spaces" or self.tokenizer is not None
        require(known, "data.pipeline = 'spaces' is for the tokenizers of converted models: give data.tokenizer")
        foreign = f"{self.tokenizer or 'data.pipeline'}: data cannot be prepared with the tokenizer of a folder"
        remedy = "that was converted from transformers; learn one, or take one of Macaron's own"
        require(self.pipeline != "plain", f"{foreign} {remedy}")
        grows = self.extend_vocab is None or (self.extend_vocab > 0 and self.tokenizer is not None)
        require(grows, "data.extend_vocab adds subwords to data.tokenizer: give that, and a number above 0")
        if self.vocab_size != "auto":
            with naming("data.vocab_size"):
                check_size(self.vocab_size - len(self.tags), self.pipeline == "raw", self.vocabulary)
        for split in SPLITS:
            for corpus in getattr(self, split, ()):
                fits = self.pipeline != "raw" or corpus.state == "raw" or self.tokenizer is not None
                given = f"data.{split}: the raw pipeline takes plain text, but {corpus.path} has state 'moses'"
                require(fits, f"{given}. Choose pipeline 'moses', or detokenise the text.")

    @property
    def tags(self) -> list[str]:
        """The tags of the corpora to train on, in their order."""
        tags = (getattr(corpus, "tag", None) for corpus in self.train)
        return list(dict.fromkeys(tag for tag in tags if tag is not None))


@dataclass(frozen=True, kw_only=True)
class PairsSettings(DataSettings):
    """Everything that decides what a prepared folder of sentence pairs holds."""

    kind: ClassVar[DataKind] = "pairs"
    vocabulary: ClassVar[TokenizerKind] = "translation"

    source_lang: str
    target_lang: str
    train: tuple[CorpusSettings, ...]
    valid: tuple[CorpusSettings, ...] = ()
    test: tuple[CorpusSettings, ...] = ()
    archives: tuple[ArchiveSettings, ...] = ()
    min_words: Count = 1
    max_ratio: Annotated[float, Between(0, 1e300)] = 1.5
    ratio_slack: Annotated[float, Between(0, 1e300)] = 5.0
    remove_duplicates: bool = True
    remove_overlap: Literal["none", "source", "pair"] = "source"

    def __post_init__(self) -> None:
        super().__post_init__()
        differ = self.source_lang != self.target_lang
        require(differ, "data.source_lang and data.target_lang are the same: the two files would be one")
        require(not (self.valid and self.valid_every), "give either data.valid or data.valid_every, not both")
        some_left = self.valid_every is None or self.valid_every >= 2 or self.valid_every == 0
        require(some_left, "data.valid_every must be at least 2 (or 0): something must be left to train on")
        ordered = self.min_words <= self.max_words
        require(ordered, "data.min_words and data.max_words must satisfy 0 <= min_words <= max_words")
        for split in SPLITS:
            # Mixed text could not be scored: one reference would be plain, the next tokenised.
            states = {corpus.state for corpus in getattr(self, split)}
            fits = len(states) < 2 or (split == "train" and not self.holds_out)
            remedy = "give corpora to data.valid" if split == "train" else "split them"
            require(fits, f"data.{split}: corpora of different state cannot be scored together; {remedy}")
            unknown = sorted({str(corpus.tag) for corpus in getattr(self, split)} - {"None", *self.tags})
            require(not unknown, f"data.{split}: tag {', '.join(unknown)} is not that of a corpus to train on")
        names = {archive.name for archive in self.archives}
        require(len(names) == len(self.archives), "data.archives: two archives have the same name")
        for corpus in (*self.train, *self.valid, *self.test):
            named = corpus.archive is None or corpus.archive in names
            require(named, f"{corpus.path}: there is no archive {corpus.archive!r} in data.archives")
            require(corpus in self.train or corpus.weight == 1, f"{corpus.path}: weight is for data.train alone")
            unknown = sorted(set(corpus.checksums) - set(self.languages))
            require(not unknown, f"{corpus.path}: checksums for {', '.join(unknown)}, not a language here")

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return self.source_lang, self.target_lang

    @property
    def holds_out(self) -> bool:
        """Whether training pairs are held out to validate on."""
        return not self.valid if self.valid_every is None else self.valid_every > 0


@dataclass(frozen=True, kw_only=True)
class TextSettings(DataSettings):
    """Everything that decides what a prepared folder of documents holds: ``kind = "text"``.

    :param documents: what begins one: a blank line before it, or WikiText's headings of articles
    """

    kind: ClassVar[DataKind] = "text"
    vocabulary: ClassVar[TokenizerKind] = "encoder"
    holds_out: ClassVar[bool] = True

    train: tuple[TextFileSettings, ...]
    fetch: tuple[FetchSettings, ...] = ()
    wikipedia: tuple[WikipediaSettings, ...] = ()
    lang: str = "en"
    documents: Literal["blank-lines", "headings"] = "blank-lines"
    max_words: WordLimit = 500
    valid_every: Count = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.valid_every >= 2, "data.valid_every must be at least 2: something must be left to train on")
        paths = [item.path for item in (*self.fetch, *self.wikipedia)]
        require(len(set(paths)) == len(paths), "data.fetch and data.wikipedia: two files have the same path")

    @property
    def languages(self) -> tuple[str, str]:
        """The language, as both sides."""
        return self.lang, self.lang
