"""Requests: who asks, how often and how much; the fields of body and query, checked; translations; shapes of errors."""

import asyncio
import hmac
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message

from macaron.errors import MacaronError, log_failure
from macaron.files import read_lines
from macaron.json_files import parse_json
from macaron.limits import MOST_TEXTS, check_limits, why
from macaron.serve.engine import Engine, computed
from macaron.settings import Origin, convert

AUTO = "auto"
Handler = Callable[["Asked"], Awaitable[Any]]
_MOST_FIELDS = 2000
#: A body that is too large is read, and dropped, up to this multiple: while a client is sending, it reads no answer.
_DRAINED = 8
# It warns of damaged forms, which anybody can send: they are answered, not logged.
logging.getLogger("python_multipart").addHandler(logging.NullHandler())


class Fields(dict[str, Any]):
    """The fields of a request, each checked when it is read. A field that is null counts as missing."""

    def read(self, name: str, kind: Any = str, default: Any = None) -> Any:
        """A field of a type; the default where it is missing or empty, which is refused without one."""
        value = self._given(name, default)
        if isinstance(value, str):
            value = value.strip()
            if not value and default is not None:
                return default
            if kind is not str and value.isdecimal() and len(value) < 10:
                value = int(value)  # forms have strings only
        return convert(kind, value, Origin(), (name,))

    def strings(self, name: str) -> list[str]:
        """A required field that is a string or a list of strings."""
        value = self._given(name)
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise MacaronError(f"{name} must be a string or a list of strings")
        if len(values) > MOST_TEXTS:
            raise HTTPException(413, f"{name} has {len(values):,} texts: at most {MOST_TEXTS:,} are allowed")
        return values

    def section(self, name: str) -> "Fields":
        """A field that has fields itself; empty where it is missing."""
        value = self._given(name, {})
        if not isinstance(value, dict):
            raise MacaronError(f"{name} must be an object")
        return Fields(value)

    def _given(self, name: str, default: Any = None) -> Any:
        value = default if self.get(name) is None else self[name]
        if value is None:
            raise MacaronError(f"the parameter {name} is missing")
        return value


async def _read_fields(request: Request, largest: int) -> Fields:
    """The fields of a request: those of the query, and over them those of a JSON object or of a form.

    A field that a form has several times is a list. Some clients send a GET with a body, some a POST with a query and
    none, some a key in the query beside a JSON body.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        fields = _form(request.scope["query_string"])
        if kind == "multipart/form-data":
            form = await request.form(max_files=1, max_fields=_MOST_FIELDS, max_part_size=largest)
            fields |= _joined(form.multi_items())
        else:
            body, parse = await request.body(), _json if kind.endswith(("/json", "+json")) else _form
            fields |= await computed(len(body), lambda: parse(body))
        check_limits(fields)
    except (ValueError, RecursionError) as error:
        raise MacaronError(why(error)) from None
    return Fields(fields)


def _limited(request: Request, largest: int) -> Request:
    """The same request; when more bytes of its body are read, it is refused (413)."""
    receive, read = request.receive, 0

    async def part() -> Message:
        nonlocal read
        while True:
            message = await receive()
            read += len(message.get("body", b""))
            if read <= largest:
                return message
            if not message.get("more_body") or read > _DRAINED * largest:
                raise HTTPException(413, f"the request is larger than the limit of {largest:,} bytes")

    return Request(request.scope, part)


def _json(body: bytes) -> dict[str, Any]:
    content = parse_json(body.decode("utf-8-sig"), "the body", Any) if body.strip() else {}
    if not isinstance(content, dict):
        raise MacaronError("the body must be a JSON object")
    return content


def _form(body: bytes) -> dict[str, Any]:
    """The fields of a form or a query. Many clients write UTF-8 as it is, unescaped."""
    return _joined(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS))


def _joined(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, list[Any]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: several[0] if len(several) == 1 else several for name, several in values.items()}


async def _while_connected(request: Request, work: Awaitable[Any]) -> Any:
    """What some work gives; it is cancelled when the client has gone."""
    mine: Any = asyncio.current_task()

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        mine.cancel()

    watching = asyncio.create_task(disconnected())
    try:
        return await work
    except asyncio.CancelledError:
        if watching.done():
            raise ClientDisconnect from None
        # uvicorn ends what still runs when the time after SIGTERM is over.
        raise HTTPException(503, "the server is being stopped: try again later", {"Retry-After": "5"}) from None
    finally:
        watching.cancel()


class Protocol(NamedTuple):
    """Statuses of requests without an API key, with a wrong one, with too long a text; and the body of an error."""

    key_missing: int
    key_wrong: int
    too_long: int
    error: Callable[[str], Any]


_LIBRETRANSLATE = Protocol(400, 403, 400, lambda message: {"error": message})
_HUGGING_FACE = Protocol(401, 401, 413, lambda message: {"error": message})
#: By the beginnings of paths.
_PROTOCOLS = {
    "/v2/": Protocol(403, 403, 413, lambda message: {"message": message}),
    "/v1/": Protocol(401, 401, 413, lambda message: {"error": {"message": message, "type": None, "code": None}}),
    "/pipeline/": _HUGGING_FACE,
    "/models/": _HUGGING_FACE,
}


def protocol_of(path: str) -> Protocol:
    """The protocol of a path of the server."""
    found = (each for start, each in _PROTOCOLS.items() if path.startswith(start))
    return _HUGGING_FACE if path == "/" else next(found, _LIBRETRANSLATE)


def as_http(error: Exception) -> HTTPException:
    """An error as what HTTP tells of it."""
    if isinstance(error, HTTPException):
        return error
    if isinstance(error, MacaronError):
        return HTTPException(400, str(error))
    if isinstance(error, ClientDisconnect):
        return HTTPException(499, "the client has gone")  # nobody reads it; it is counted
    log_failure("a request", error)
    return HTTPException(500, "something went wrong inside the server")


async def _answer(request: Request, error: Exception) -> Response:
    told = as_http(error)
    return JSONResponse(protocol_of(request.scope["path"]).error(told.detail), told.status_code, told.headers)


#: What Starlette calls for an exception; not a plain function, which would wait for a thread.
ERRORS = dict.fromkeys((HTTPException, MacaronError, ClientDisconnect, Exception), _answer)


#: Of more clients, those that would be allowed everything again are forgotten.
_MOST_CLIENTS = 100_000
_KEY = re.compile(r"(?P<key>[!-~]+)(\s+(?P<limit>[1-9][0-9]{0,5}|1000000))?")


class Access:
    """Keys and limits of a server.

    :param keys: with their requests per minute, None for those of the server; without keys everyone may ask
    :param per_minute: requests of a client, or of a key without a limit of its own; 0: any number
    :param clock: seconds
    """

    def __init__(
        self, keys: Mapping[str, int | None], per_minute: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.keys, self.per_minute, self._clock = keys, per_minute, clock
        #: When the requests of a client so far will have been worked off, one by one at its rate.
        self._busy_until: dict[str, float] = {}
        #: Characters translated, by key; under "" those of clients without one.
        self.characters: Counter[str] = Counter()

    def admit(self, request: Request, fields: Fields, work: bool) -> str:
        """The key of a request; empty where none is needed. A missing or a wrong one is refused.

        :param work: count it, and refuse it (429) beyond the limit
        """
        key = self._identify(request, fields) if self.keys else ""
        per_minute = self.keys.get(key) or self.per_minute
        client = key or (request.client.host if request.client else "")
        if work and per_minute and (wait := self.take(client, per_minute)):
            message = f"too many requests: {per_minute} per minute are allowed. Try again in {wait} s."
            raise HTTPException(429, message, {"Retry-After": str(wait)})
        return key

    def _identify(self, request: Request, fields: Fields) -> str:
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


def read_keys(path: Path) -> dict[str, int | None]:
    """The keys of a file: one per line, with requests per minute after a space; ``#`` begins a comment."""
    keys: dict[str, int | None] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not (content := line.partition("#")[0].strip()):
            continue
        # The key itself is in no message: messages are logged.
        if not (found := _KEY.fullmatch(content)):
            wanted = "write a key of ASCII characters and, if it has a limit, its requests per minute (1 to 1000000)"
            raise MacaronError(f"{path}, line {number}: {wanted}")
        if found["key"] in keys:
            raise MacaronError(f"{path}, line {number}: this key is there twice")
        keys[found["key"]] = int(found["limit"]) if found["limit"] else None
    if not keys:
        raise MacaronError(f"{path}: no key in this file. Write one key per line.")
    return keys


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

        A text that is in the target language stays as it is. The options are those of `Engine.translate`.

        :param source: ``auto`` to detect it, for each text
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
        found = {text: [text] for text in texts}

        async def work(code: str) -> None:
            some = [text for text, (each, _) in zip(texts, sources, strict=True) if each == code]
            done = await self.engine.translate(catalogue.pair(code, into).name, some, **options)
            found.update(zip(some, done, strict=True))

        await asyncio.gather(*map(work, {code for code, _ in sources} - {into}))
        return [(found[text], *language) for text, language in zip(texts, sources, strict=True)]


async def answered(request: Request, handle: Handler, work: bool = True, limit: float = 0) -> Any:
    """What a handler gives for a request whose fields were read and whose key was checked.

    :param work: whether it counts for the limits of its client, and is refused if there is too much to do
    :param limit: its deadline in seconds, 0 for that of the settings; infinite where it needs no worker
    """
    engine, access = request.app.state.engine, request.app.state.access
    request = _limited(request, engine.settings.body_limit)
    try:
        if work:
            engine.admit(limit)  # before anything is parsed: what is refused must cost little
    except HTTPException:
        async for _ in request.stream():  # as long as a client is sending, it reads no answer
            pass
        raise
    fields = await _read_fields(request, engine.settings.body_limit)
    key = access.admit(request, fields, work)
    return await _while_connected(request, handle(Asked(request, engine, access, fields, key)))


def route(path: str, handle: Handler, methods: Sequence[str] = ("POST",), **options: Any) -> Route:
    """A path that a handler answers with JSON; the options are those of `answered`."""

    async def answer(request: Request) -> Response:
        return JSONResponse(await answered(request, handle, **options))

    return Route(path, answer, methods=methods)
