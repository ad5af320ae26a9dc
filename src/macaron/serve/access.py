"""Who may ask, how often and how much: API keys, requests per minute, bytes of a body."""

import hmac
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from macaron.errors import MacaronError
from macaron.files import read_lines
from macaron.serve.protocols import protocol_of
from macaron.serve.requests import Fields

#: Keys, and their requests per minute; None for the server's limit.
Keys = Mapping[str, int | None]
#: Of more clients, those that would be allowed everything again are forgotten.
_MOST_CLIENTS = 100_000
#: A body that is too large is read, and dropped, up to this multiple: while a client is sending, it reads no answer.
_DRAINED = 8


def read_keys(path: Path) -> Keys:
    """The keys of a file: one per line, with requests per minute after a space; ``#`` begins a comment."""
    keys: dict[str, int | None] = {}
    for number, line in enumerate(read_lines(path), start=1):
        key, *limits = line.partition("#")[0].split() or [""]
        # The key itself is in no message: messages are logged.
        if key in keys:
            raise MacaronError(f"{path}, line {number}: this key is there twice")
        numbers = all(limit.isdecimal() and 0 < int(limit) <= 10**6 for limit in limits)
        if not key.isascii() or not numbers or len(limits) > 1:
            wanted = "write a key of ASCII characters and, if it has a limit, its requests per minute (1 to 1000000)"
            raise MacaronError(f"{path}, line {number}: {wanted}")
        if key:
            keys[key] = int(limits[0]) if limits else None
    if not keys:
        raise MacaronError(f"{path}: no key in this file. Write one key per line.")
    return keys


class Access:
    """Keys and limits of a server.

    :param keys: none: everyone may ask
    :param per_minute: requests of a client, or of a key without a limit of its own; 0: any number
    :param clock: seconds
    """

    def __init__(self, keys: Keys, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.keys, self.per_minute, self._clock = keys, per_minute, clock
        #: When the requests of a client so far will have been worked off, one by one at its rate.
        self._busy_until: dict[str, float] = {}
        #: Characters translated, by key; under "" those of clients without one.
        self.characters: Counter[str] = Counter()

    def identify(self, request: Request, fields: Fields) -> str:
        """The key of a request; empty where none is needed. A missing or a wrong one is refused."""
        if not self.keys:
            return ""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() not in ("bearer", "deepl-auth-key"):
            given = str(fields.get("api_key", ""))
        protocol = protocol_of(request.url.path)
        if not given:
            raise HTTPException(protocol.key_missing, "an API key is required: ask the operator of this server for one")
        # All keys are compared, each in constant time.
        found = [key for key in self.keys if hmac.compare_digest(key.encode(), given.strip().encode())]
        if not found:
            raise HTTPException(protocol.key_wrong, "the API key is not valid")
        return found[0]

    def admit(self, request: Request, fields: Fields) -> str:
        """The same for a request that takes work: it is counted, and refused (429) beyond the limit."""
        key = self.identify(request, fields)
        per_minute = self.keys.get(key) or self.per_minute
        client = key or (request.client.host if request.client else "")
        if per_minute and (wait := self.take(client, per_minute)):
            message = f"too many requests: {per_minute} per minute are allowed. Try again in {wait} s."
            raise HTTPException(429, message, {"Retry-After": str(wait)})
        return key

    def take(self, client: str, per_minute: int) -> int:
        """Count a request; 0, or the seconds to wait if the client has had its requests of a minute already."""
        now = self._clock()
        if len(self._busy_until) > _MOST_CLIENTS:
            self._busy_until = {name: until for name, until in self._busy_until.items() if until > now}
        until = max(self._busy_until.get(client, now), now) + 60 / per_minute
        if until - now > 60 + 1e-6:
            return math.ceil(until - now - 60)
        self._busy_until[client] = until
        return 0


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
                if not message.get("more_body") or read > _DRAINED * self.largest:
                    raise HTTPException(413, f"the request is larger than the limit of {self.largest:,} bytes")

        await self.app(scope, limited, send)
