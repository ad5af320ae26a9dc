"""Translated files, in memory until they are fetched: once, and not long after."""

import asyncio
import secrets

from macaron.serve.engine import Format

#: Formats of documents by the ending of the file's name.
FORMATS: dict[str, Format] = {".txt": "text", ".srt": "srt", ".html": "html", ".htm": "html"}


class TranslatedFiles:
    """Names and contents of files, by tokens that nobody guesses.

    :param seconds: until a file that nobody fetches is gone
    :param most: bytes of all files; of more, the oldest are gone
    """

    def __init__(self, seconds: float = 20 * 60, most: int = 64 << 20) -> None:
        self.seconds, self.most = seconds, most
        self._files: dict[str, tuple[str, bytes]] = {}

    def keep(self, name: str, content: bytes) -> str:
        """Keep a file; the token under which it is fetched."""
        token = secrets.token_urlsafe(24)
        self._files[token] = (name, content)
        while sum(len(each) for _, each in self._files.values()) > self.most:
            del self._files[next(iter(self._files))]
        asyncio.get_running_loop().call_later(self.seconds, self.fetch, token)
        return token

    def fetch(self, token: str) -> tuple[str, bytes] | None:
        """Name and content of a file, which is gone then; None if there is none."""
        return self._files.pop(token, None)
