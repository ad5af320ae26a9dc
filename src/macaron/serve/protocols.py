"""Where the protocols differ for what all requests go through: statuses and shapes of errors."""

from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from macaron.errors import MacaronError
from macaron.serve.engine import Busy, TooLate, WorkerLost


class Protocol(NamedTuple):
    """Statuses of requests without an API key, with a wrong one, with too long a text; and the body of an error."""

    key_missing: int
    key_wrong: int
    too_long: int
    error: Callable[[str], Any]


_LIBRETRANSLATE = Protocol(400, 403, 400, lambda message: {"error": message})
_DEEPL = Protocol(403, 403, 413, lambda message: {"message": message})
_HUGGING_FACE = Protocol(401, 401, 413, lambda message: {"error": message})
_OPENAI = Protocol(401, 401, 413, lambda message: {"error": {"message": message, "type": None, "code": None}})


def protocol_of(path: str) -> Protocol:
    """The protocol of a path of the server."""
    if path.startswith("/v2/"):
        return _DEEPL
    if path.startswith("/v1/"):
        return _OPENAI
    return _HUGGING_FACE if path == "/" or path.startswith(("/pipeline/", "/models/")) else _LIBRETRANSLATE


def explain(error: Exception) -> tuple[int, str, dict[str, str]]:
    """Status, message and headers of an error."""
    match error:
        case HTTPException():
            return error.status_code, error.detail, dict(error.headers or {})
        case MacaronError():
            return 400, str(error), {}
        case Busy():
            return 503, str(error), {"Retry-After": str(error.retry_after)}
        case WorkerLost():
            return 503, "the model stopped during this request: try again", {"Retry-After": "1"}
        case TooLate():
            return 504, "the request took too long: send less at once, or try again later", {}
        case ClientDisconnect():
            return 499, "the client has gone", {}  # nobody reads it; it is counted
    return 500, "something went wrong inside the server", {}


async def _answer(request: Request, error: Exception) -> Response:
    status, message, headers = explain(error)
    return JSONResponse(protocol_of(request.url.path).error(message), status, headers)


#: What Starlette calls for an exception; not a plain function, which would wait for a thread.
ERRORS = dict.fromkeys((HTTPException, MacaronError, Busy, WorkerLost, TooLate, ClientDisconnect, Exception), _answer)
