"""The ``[data]`` section of a recipe for plain text, ``kind = "text"``: documents for pre-training.

``recipes/wikipedia-books.toml`` explains the keys in its comments.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from macaron.data.recipe import LANGUAGE, check_checksum
from macaron.errors import MacaronError
from macaron.text.pipeline import State
from macaron.text.vocabulary import check_size


@dataclass(frozen=True)
class TextFileRecipe:
    """Files of plain text: a paragraph a line, a blank line between documents; plain, ``.gz`` or ``.xz``.

    :param path: a file, or a pattern such as ``wiki-*.txt.xz``, relative to the recipe's `root`
    :param state: ``raw`` for plain text, ``moses`` if it is tokenised and escaped already
    """

    path: str
    state: State = "raw"

    def __post_init__(self) -> None:
        if not self.path:
            raise MacaronError("a text needs a path: a file, or a pattern such as 'wiki-*.txt.xz'")


@dataclass(frozen=True)
class FetchRecipe:
    """A file to fetch where it is not here.

    :param path: where it is to lie, relative to the recipe's `root`
    :param urls: where it is; the next one is tried when one fails
    :param checksum: ``sha256:...`` or ``md5:...``; without one, what the first download gave is recorded
    """

    path: str
    urls: tuple[str, ...]
    checksum: str | None = None

    def __post_init__(self) -> None:
        if not self.path or not self.urls:
            raise MacaronError(f"{self.path or 'a file to fetch'!r} needs a path and at least one url")
        check_checksum(self.checksum, self.path)


@dataclass(frozen=True)
class WikipediaRecipe(FetchRecipe):
    """A dump of Wikipedia, ``...-pages-articles.xml.bz2``, whose text is to lie at `path`.

    :param min_words: leave out articles with fewer words: stubs, lists, disambiguations
    """

    min_words: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if Path(self.path).suffix == ".xz":
            raise MacaronError(f"{self.path}: the text of a dump is written plain or as .gz; name it so")
        if self.min_words < 0:
            raise MacaronError(f"{self.path}: min_words must not be negative")

    @property
    def file_name(self) -> str:
        """The name of the dump in the folder of downloads."""
        return urlsplit(self.urls[0]).path.rpartition("/")[2]


@dataclass(frozen=True)
class TextRecipe:
    """Everything that decides what a prepared folder of documents holds.

    :param out: the folder to write
    :param train: the texts; a part of their documents is held out to validate on
    :param kind: ``text``
    :param root: folder that the paths start from
    :param downloads: folder for dumps; by default ``downloads`` in `root`
    :param fetch: files to fetch
    :param wikipedia: dumps to fetch and to take the text from
    :param lang: language, for the rules by which sentences and (``moses``) words are split
    :param pipeline: ``raw`` (cased plain text) or ``moses`` (normalised, tokenised, lower-cased)
    :param lower: lower-case; for ``moses``
    :param normalize: normalise punctuation; for ``moses``
    :param vocab_size: size of the subword vocabulary
    :param vocab_multiple: the vocabulary is padded to a multiple of this
    :param max_words: drop sentences with more words: tables and lists that are none
    :param valid_every: validate on every so manieth document, at least on two where there are four or more
    """

    out: Path
    train: tuple[TextFileRecipe, ...]
    kind: Literal["text"] = "text"
    root: Path = Path()
    downloads: Path | None = None
    fetch: tuple[FetchRecipe, ...] = ()
    wikipedia: tuple[WikipediaRecipe, ...] = ()
    lang: str = "en"
    pipeline: Literal["raw", "moses"] = "raw"
    lower: bool = True
    normalize: bool = True
    vocab_size: int = 32_000
    vocab_multiple: int = 8
    max_words: int = 500
    valid_every: int = 200

    def __post_init__(self) -> None:
        if not LANGUAGE.fullmatch(self.lang):
            raise MacaronError(f"data.lang = {self.lang!r} is no language code such as 'en'")
        if not self.train:
            raise MacaronError("data.train is empty: give at least one text")
        if self.valid_every < 2:
            raise MacaronError("data.valid_every must be at least 2: something must be left to train on")
        if self.max_words < 1:
            raise MacaronError("data.max_words must be positive")
        if self.vocab_multiple < 1:
            raise MacaronError("data.vocab_multiple must be positive")
        try:
            check_size(self.vocab_size, self.pipeline == "raw", "encoder")
        except MacaronError as error:
            raise MacaronError(f"data.vocab_size: {error}") from error
        for text in self.train:
            if text.state == "moses" and self.pipeline == "raw":
                raise MacaronError(
                    f"data.train: the raw pipeline takes plain text, but {text.path} has state 'moses'. "
                    "Choose pipeline 'moses', or detokenise the text."
                )
        places = [item.path for item in (*self.fetch, *self.wikipedia)]
        if len(set(places)) < len(places):
            raise MacaronError("data.fetch and data.wikipedia: two files have the same path")

    @property
    def downloads_folder(self) -> Path:
        """Where dumps are kept."""
        return self.downloads if self.downloads is not None else self.root / "downloads"


@dataclass(frozen=True)
class TextOnly:
    """A recipe of which only ``[data]`` is looked at."""

    data: TextRecipe
