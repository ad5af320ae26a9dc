"""Who may ask, how often and how much: API keys, requests per minute, bytes of a body."""

import hmac
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from macaron.errors import MacaronError
from macaron.files import read_lines
from macaron.serve.protocols import protocol_of

#: Clients whose requests are counted; of more, those that have asked longest ago are forgotten.
_MOST_CLIENTS = 100_000
#: A body that is too large is read, and dropped, up to this multiple: while a client is sending, it reads no answer.
_DRAINED = 8
_SCHEMES = ("bearer", "deepl-auth-key")


@dataclass(frozen=True)
class Key:
    """An API key.

    :param per_minute: requests; None for the server's limit
    """

    secret: str
    per_minute: int | None = None

    def __repr__(self) -> str:
        return "Key(...)"  # never in a log or a traceback


def read_keys(path: Path) -> list[Key]:
    """The keys of a file: one per line, with requests per minute after a space; ``#`` begins a comment."""
    keys: dict[str, Key] = {}
    for number, line in enumerate(read_lines(path), start=1):
        secret, *limits = line.partition("#")[0].split() or [""]
        if not secret:
            continue
        # The key itself is in no message: messages are logged.
        if not secret.isascii() or secret in keys:
            what = "this key is there twice" if secret in keys else "a key has ASCII characters only"
            raise MacaronError(f"{path}, line {number}: {what}")
        if len(limits) > 1 or not all(limit.isdecimal() and 0 < int(limit) <= 10**6 for limit in limits):
            raise MacaronError(
                f"{path}, line {number}: write a key, or a key and its requests per minute (1 to 1000000)"
            )
        keys[secret] = Key(secret, int(limits[0]) if limits else None)
    if not keys:
        raise MacaronError(f"{path}: no key in this file. Write one key per line.")
    return list(keys.values())


class Rates:
    """Requests per minute of many clients: as many at once, then one by one.

    :param clock: seconds
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: When the requests of a client so far will have been worked off, at its rate.
        self._until: OrderedDict[str, float] = OrderedDict()

    def take(self, client: str, per_minute: int) -> int:
        """Count a request; 0, or the seconds after which the next one is allowed."""
        now, step = self._clock(), 60 / per_minute
        until = max(self._until.pop(client, now), now) + step
        wait = until - now - 60
        self._until[client] = until if wait <= 1e-6 else until - step
        if len(self._until) > _MOST_CLIENTS:
            self._until.popitem(last=False)
        return 0 if wait <= 1e-6 else max(1, math.ceil(wait))


class Access:
    """Keys and limits of a server.

    :param keys: none: everyone may ask
    :param per_minute: requests of a client, or of a key without a limit of its own; 0: any number
    """

    def __init__(self, keys: Sequence[Key], per_minute: int) -> None:
        self.keys, self.per_minute, self._rates = keys, per_minute, Rates()
        #: Characters translated, by key; under "" those of clients without one.
        self.characters: Counter[str] = Counter()

    def identify(self, request: Request, fields: Mapping[str, Any]) -> Key | None:
        """The key of a request; None where none is needed. A missing or a wrong one is refused."""
        if not self.keys:
            return None
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() not in _SCHEMES:
            given = fields.get("api_key", "")
        protocol = protocol_of(request.url.path)
        if not given or not isinstance(given, str):
            raise HTTPException(protocol.key_missing, "an API key is required: ask the operator of this server for one")
        secret = given.strip().encode()
        # All keys are compared, each in constant time.
        found = [key for key in self.keys if hmac.compare_digest(key.secret.encode(), secret)]
        if not found:
            raise HTTPException(protocol.key_wrong, "the API key is not valid")
        return found[0]

    def admit(self, request: Request, fields: Mapping[str, Any]) -> Key | None:
        """The same for a request that takes work: it is counted, and refused (429) beyond the limit."""
        key = self.identify(request, fields)
        per_minute = self.per_minute if key is None or key.per_minute is None else key.per_minute
        if per_minute:
            host = request.client.host if request.client else ""
            wait = self._rates.take(f"key {key.secret}" if key else host, per_minute)
            if wait:
                message = f"too many requests: {per_minute} per minute are allowed. Try again in {wait} s."
                raise HTTPException(429, message, {"Retry-After": str(wait)})
        return key

    def count(self, key: Key | None, characters: int) -> None:
        """Add characters to those of a key."""
        self.characters[key.secret if key else ""] += characters


class BodyLimit:
    """Refuses (413) bodies of more than some bytes, whoever reads them."""

    def __init__(self, app: ASGIApp, largest: int) -> None:
        self.app, self.largest = app, largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its body in parts."""
        read = 0

        async def limited() -> Message:
            nonlocal read
            while True:
                message = await receive()
                read += len(message.get("body", b""))
                if read <= self.largest:
                    return message
                if message["type"] != "http.request" or not message.get("more_body") or read > _DRAINED * self.largest:
                    raise HTTPException(413, f"the request is larger than the limit of {self.largest:,} bytes")

        await self.app(scope, limited if scope["type"] == "http" else receive, send)
