"""What the protocols share: who asks, how often and how much, in which languages, and the translations."""

import asyncio
import hmac
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from macaron.errors import MacaronError
from macaron.serve.engine import Engine
from macaron.serve.requests import Fields, limited, protocol_of, read_fields, while_connected
from macaron.serve.settings import Keys

AUTO = "auto"
#: Of more clients, those that would be allowed everything again are forgotten.
_MOST_CLIENTS = 100_000


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
        protocol = protocol_of(request.scope["path"])
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


class Asked(NamedTuple):
    """A request of somebody who may ask. Its work ends when the client has gone.

    :param key: its API key; empty where none is needed
    """

    request: Request
    engine: Engine
    access: Access
    fields: Fields
    key: str

    def measure(self, texts: Sequence[str]) -> None:
        """Count the characters of a request; too many are refused."""
        size, most = sum(map(len, texts)), self.engine.settings.text_limit
        if size > most:
            status = protocol_of(self.request.scope["path"]).too_long
            raise HTTPException(status, f"request ({size}) exceeds text limit ({most})")
        self.access.characters[self.key] += size

    async def translate(
        self, texts: Sequence[str], source: str, target: str, **options: Any
    ) -> list[tuple[list[str], str, float]]:
        """For each text its translations, best first, its language and the confidence in that.

        A text that is in the target language stays as it is.

        :param source: ``auto`` to detect it, for each text
        :param options: of `Engine.translate`
        """
        catalogue = self.engine.catalogue
        into = catalogue.language(target)
        if source.lower() == AUTO:
            ranked = await asyncio.to_thread(lambda: [catalogue.detect(text, into) for text in texts])
            if not all(ranked):
                raise MacaronError(f"nothing is translated into {into} here")
            sources = [languages[0] for languages in ranked]
        else:
            sources = [(catalogue.language(source), 1.0)] * len(texts)
        found = [[text] for text in texts]

        async def work(code: str) -> None:
            members = [index for index, (each, _) in enumerate(sources) if each == code]
            some = [texts[index] for index in members]
            done = await self.engine.translate(catalogue.pair(code, into).name, some, **options)
            for index, each in zip(members, done, strict=True):
                found[index] = each

        foreign = {code for code, _ in sources} - {into}
        await asyncio.gather(*map(work, foreign))
        return [(each, *language) for each, language in zip(found, sources, strict=True)]


Handler = Callable[[Asked], Awaitable[Any]]


async def answered(request: Request, handle: Handler, work: bool = True, limit: float | None = None) -> Any:
    """What a handler gives for a request whose fields were read and whose key was checked.

    :param work: whether it counts for the limits of its client, and is refused if there is too much to do
    :param limit: seconds that it may take, by default the deadline of the settings; infinite where it needs no worker
    """
    engine, access = request.app.state.engine, request.app.state.access
    request = limited(request, engine.settings.body_limit)
    try:
        if work:
            engine.admit(limit)  # before anything is parsed: what is refused must cost little
    except HTTPException:
        async for _ in request.stream():  # as long as a client is sending, it reads no answer
            pass
        raise
    fields = await read_fields(request, engine.settings.body_limit)
    key = access.admit(request, fields) if work else access.identify(request, fields)
    return await while_connected(request, handle(Asked(request, engine, access, fields, key)))


def route(path: str, handle: Handler, methods: Sequence[str] = ("POST",), **options: Any) -> Route:
    """A path that a handler answers with JSON; the options are those of `answered`."""

    async def answer(request: Request) -> Response:
        return JSONResponse(await answered(request, handle, **options))

    return Route(path, answer, methods=methods)
