"""How the protocols differ where all requests go the same way: statuses and shapes of errors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Protocol:
    """The errors of a protocol.

    :param key_missing: status of a request without an API key
    :param too_long: status of a text beyond the limit
    :param error: the body for a status and a message
    """

    key_missing: int
    key_wrong: int
    too_long: int
    error: Callable[[int, str], dict[str, Any]]


def _openai(status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


_LIBRETRANSLATE = Protocol(400, 403, 400, lambda _, message: {"error": message})
_DEEPL = Protocol(403, 403, 413, lambda _, message: {"message": message})
_HUGGING_FACE = Protocol(401, 401, 413, lambda _, message: {"error": message})
_OPENAI = Protocol(401, 401, 413, _openai)


def protocol_of(path: str) -> Protocol:
    """The protocol of a path of the server."""
    if path.startswith("/v2/"):
        return _DEEPL
    if path.startswith("/v1/"):
        return _OPENAI
    return _HUGGING_FACE if path == "/" or path.startswith(("/pipeline/", "/models/")) else _LIBRETRANSLATE
