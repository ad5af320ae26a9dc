"""Requests: the fields of body and query, checked; work that ends when the client has gone; the shapes of errors."""

import asyncio
import logging
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message

from macaron.errors import MacaronError
from macaron.json_files import parse_json
from macaron.limits import MOST_TEXTS, check_limits, why
from macaron.origin import Origin
from macaron.settings import convert

T = TypeVar("T")
#: Fields of a form; bytes of a body that takes time to parse.
_MOST_FIELDS, _LARGE = 2000, 1 << 16
#: A body that is too large is read, and dropped, up to this multiple: while a client is sending, it reads no answer.
_DRAINED = 8
# It warns of damaged forms, which anybody can send: they are answered, not logged.
logging.getLogger("python_multipart").addHandler(logging.NullHandler())


class Fields(dict[str, Any]):
    """The fields of a request, each checked when it is read. A field that is null counts as missing."""

    def read(self, name: str, kind: Any = str, default: Any = None) -> Any:
        """A field of a type.

        :param default: for a field that is missing or empty; without it the field is required
        """
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
        value = self.get(name)
        if value is None and default is None:
            raise MacaronError(f"the parameter {name} is missing")
        return default if value is None else value


async def read_fields(request: Request, largest: int) -> Fields:
    """The fields of a request: those of the query, and over them those of a JSON object or of a form.

    A field that a form has several times is a list. Some clients send a GET with a body, some a POST with a query and
    none, some a key in the query beside a JSON body.

    :param largest: bytes of a part of a form
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        fields = _form(request.scope["query_string"])
        if kind == "multipart/form-data":
            form = await request.form(max_files=1, max_fields=_MOST_FIELDS, max_part_size=largest)
            fields |= _joined(form.multi_items())
        else:
            body, parse = await request.body(), _json if kind.endswith(("/json", "+json")) else _form
            # Other requests go on meanwhile.
            fields |= await asyncio.to_thread(parse, body) if len(body) > _LARGE else parse(body)
        check_limits(fields)
    except (ValueError, RecursionError) as error:
        raise MacaronError(why(error)) from None
    return Fields(fields)


def limited(request: Request, largest: int) -> Request:
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


async def while_connected(request: Request, work: Awaitable[T]) -> T:
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
    # Where it happened, but no message: it may quote the text.
    places = "".join(traceback.format_tb(error.__traceback__)[-3:])
    print(f"macaron: a request failed: {type(error).__name__}\n{places}", file=sys.stderr, flush=True)
    return HTTPException(500, "something went wrong inside the server")


async def _answer(request: Request, error: Exception) -> Response:
    told = as_http(error)
    return JSONResponse(protocol_of(request.scope["path"]).error(told.detail), told.status_code, told.headers)


#: What Starlette calls for an exception; not a plain function, which would wait for a thread.
ERRORS = dict.fromkeys((HTTPException, MacaronError, ClientDisconnect, Exception), _answer)
