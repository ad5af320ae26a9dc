"""Translated files, in memory until they are fetched: once, and not long after."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

#: Formats of documents by the ending of the file's name.
FORMATS: dict[str, Literal["text", "html", "srt"]] = {".txt": "text", ".srt": "srt", ".html": "html", ".htm": "html"}
#: Seconds until a file that nobody fetches is gone, and bytes of all files; of more, the oldest are gone.
_KEPT_FOR, _MOST_BYTES = 20 * 60, 64 << 20


@dataclass(frozen=True)
class TranslatedFile:
    """A file that waits.

    :param made: seconds of the clock
    """

    name: str
    content: bytes
    made: float


class TranslatedFiles:
    """Files by unguessable tokens.

    :param clock: seconds
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._files: OrderedDict[str, TranslatedFile] = OrderedDict()

    def keep(self, name: str, content: bytes) -> str:
        """Keep a file; the token under which it is fetched."""
        token = secrets.token_urlsafe(24)
        self._files[token] = TranslatedFile(name, content, self._clock())
        self._forget()
        return token

    def fetch(self, token: str) -> TranslatedFile | None:
        """A file, which is gone then; None if there is none."""
        self._forget()
        return self._files.pop(token, None)

    def _forget(self) -> None:
        size = sum(len(file.content) for file in self._files.values())
        while self._files:
            oldest = next(iter(self._files.values()))
            if size <= _MOST_BYTES and self._clock() - oldest.made <= _KEPT_FOR:
                return
            self._files.popitem(last=False)
            size -= len(oldest.content)
