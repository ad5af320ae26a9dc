"""Requests: the fields of a body and a query, checked; and work that ends when the client has gone."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from macaron.errors import MacaronError
from macaron.json_files import parse_json
from macaron.limits import MOST_TEXTS, check_limits, why

T = TypeVar("T")
Fields = Mapping[str, Any]
#: Fields of a form; bytes of a body that takes time to parse.
_MOST_FIELDS, _LARGE = 2000, 1 << 16
# It warns of damaged forms, which anybody can send: they are answered, not logged.
logging.getLogger("python_multipart").addHandler(logging.NullHandler())


async def read_fields(request: Request) -> dict[str, Any]:
    """The fields of a request: those of the query, and over them those of a JSON object or of a form.

    A field that a form has several times is a list; a field that is null is left out. Some clients send a GET with a
    body, some a POST with a query and none, some a key in the query beside a JSON body.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        fields = _form(request.scope["query_string"])
        if kind == "multipart/form-data":
            form = await request.form(max_files=1, max_fields=_MOST_FIELDS, max_part_size=1 << 30)  # BodyLimit has it
            fields |= _joined(form.multi_items())
        else:
            body, parse = await request.body(), _json if kind.endswith(("/json", "+json")) else _form
            # Other requests go on meanwhile.
            fields |= await asyncio.to_thread(parse, body) if len(body) > _LARGE else parse(body)
        check_limits(fields)
    except (ValueError, RecursionError, MacaronError) as error:
        raise HTTPException(400, str(error) if isinstance(error, MacaronError) else why(error)) from None
    return {name: value for name, value in fields.items() if value is not None}


def string(fields: Fields, name: str, default: str | None = None) -> str:
    """A field that is a string; without a default it is required."""
    value = _given(fields, name, default)
    if not isinstance(value, str):
        raise HTTPException(400, f"{name} must be a string")
    return value.strip()


def strings(fields: Fields, name: str) -> list[str]:
    """A required field that is a string or a list of strings."""
    value = _given(fields, name)
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise HTTPException(400, f"{name} must be a string or a list of strings")
    if len(values) > MOST_TEXTS:
        raise HTTPException(413, f"{name} has {len(values):,} texts: at most {MOST_TEXTS:,} are allowed")
    return values


def whole_number(fields: Fields, name: str, least: int, most: int, default: int) -> int:
    """A field that is a whole number, in a form a string."""
    value = fields.get(name, default)
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise HTTPException(400, f"{name} must be a whole number between {least} and {most}")
    return value


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """What some work gives; it is cancelled when the client has gone."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    except asyncio.CancelledError:  # uvicorn ends what still runs when the time after SIGTERM is over
        raise HTTPException(503, "the server is being stopped: try again later", {"Retry-After": "5"}) from None
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)  # what they end with is not logged


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _given(fields: Fields, name: str, default: str | None = None) -> Any:
    value = fields.get(name, default)
    if value is None:
        raise HTTPException(400, f"the parameter {name} is missing")
    return value


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
