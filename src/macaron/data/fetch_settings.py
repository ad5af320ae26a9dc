"""What a recipe's ``[data]`` section says about files to fetch: archives, single files, dumps of Wikipedia."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from macaron.errors import require

_CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}")


def check_checksum(checksum: str | None, where: str) -> None:
    """Refuse a checksum that is not written as one."""
    right = checksum is None or _CHECKSUM.fullmatch(checksum) is not None
    require(right, f"{where}: write a checksum as 'sha256:' and 64 digits 0-f, or 'md5:' and 32")


def check_urls(urls: Sequence[str], where: str) -> None:
    """Refuse addresses that are none, and a first one that does not name a file."""
    require(bool(urls), f"{where} needs at least one url")
    try:
        named = all(urlsplit(url).path for url in urls) and file_name(urls) not in ("", ".", "..")
    except ValueError:
        named = False
    require(named, f"{where}: {', '.join(urls)[:200]!r} is not the address of a file")


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
        check_urls(self.urls, f"archive {self.name!r}")
        check_checksum(self.checksum, f"archive {self.name!r}")


@dataclass(frozen=True)
class FetchSettings:
    """A file to fetch if it is missing; `urls` and `checksum` as for an archive.

    :param path: its path, relative to the recipe's `root`
    """

    path: str
    urls: tuple[str, ...]
    checksum: str | None = None

    def __post_init__(self) -> None:
        require(self.path != "", "a file to fetch needs a path")
        check_urls(self.urls, repr(self.path))
        check_checksum(self.checksum, self.path)


@dataclass(frozen=True)
class WikipediaSettings(FetchSettings):
    """A dump of Wikipedia, ``...-pages-articles.xml.bz2``, whose text is written to `path`."""

    min_words: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            not self.path.endswith(".xz"), f"{self.path}: the text of a dump is written plain or as .gz: name it so"
        )
        require(self.min_words >= 0, f"{self.path}: min_words must not be negative")
