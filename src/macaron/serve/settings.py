"""Everything that ``macaron serve`` is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from macaron.errors import MacaronError, UsageError
from macaron.files import read_lines

#: Keys, and their requests per minute; None for the server's limit.
Keys = Mapping[str, int | None]


@dataclass(frozen=True)
class ServeSettings:
    """How to serve: the options of the command, which explains them, and a limit that it does not offer.

    :param body_limit: bytes of a request, and of a file
    """

    host: str = "127.0.0.1"
    port: int = 5000
    device: str = "auto"
    int8: bool = False
    workers: int = 0
    queue: int = 1000
    deadline: float = 30.0
    grace: float = 20.0
    patience: float = 60.0
    api_keys: Path | None = None
    requests_per_minute: int = 0
    text_limit: int = 20_000
    body_limit: int = 4 << 20
    origins: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        if self.int8 and self.device not in ("auto", "cpu"):
            raise UsageError(f"--int8 is for the CPU, not for {self.device}: leave it out, or choose --device cpu")
        for origin in self.origins:
            if origin != "*" and not origin.startswith(("http://", "https://")):
                raise UsageError(f"--cors takes an origin, such as https://example.org, or *; not {origin!r}")


def read_keys(path: Path) -> Keys:
    """The keys of a file: one per line, with requests per minute after a space; ``#`` begins a comment."""
    keys: dict[str, int | None] = {}
    for number, line in enumerate(read_lines(path), start=1):
        key, *limits = line.partition("#")[0].split() or [""]
        # The key itself is in no message: messages are logged.
        if key in keys:
            raise MacaronError(f"{path}, line {number}: this key is there twice")
        numbers = all(limit.isdecimal() and 0 < int(limit[:9]) <= 10**6 for limit in limits)
        if not key.isascii() or not numbers or len(limits) > 1:
            wanted = "write a key of ASCII characters and, if it has a limit, its requests per minute (1 to 1000000)"
            raise MacaronError(f"{path}, line {number}: {wanted}")
        if key:
            keys[key] = int(limits[0]) if limits else None
    if not keys:
        raise MacaronError(f"{path}: no key in this file. Write one key per line.")
    return keys
