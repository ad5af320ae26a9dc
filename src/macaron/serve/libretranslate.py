"""LibreTranslate's protocol. Where ``q`` is a list, all parts of the answer are lists.

Translated files are kept in memory, and fetched once, not long after.
"""

import asyncio
import math
import secrets
from pathlib import PurePath
from typing import Annotated, Any, Literal
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from macaron.decode.documents import ENDINGS
from macaron.errors import MacaronError
from macaron.limits import Between
from macaron.models.catalogue import language_name
from macaron.serve.requests import AUTO, Asked, route

#: Alternatives of a text.
MOST_ALTERNATIVES = 10
#: Seconds until the translation of a file is given up.
_FILE_DEADLINE = 600.0
#: Milliseconds between the last key and a request, on LibreTranslate's page.
_FRONTEND_TIMEOUT = 500


async def _translate(ask: Asked) -> Any:
    fields = ask.fields
    texts, source, target = fields.strings("q"), fields.read("source"), fields.read("target")
    format = fields.read("format", Literal["text", "html"], "text")
    more = fields.read("alternatives", Annotated[int, Between(0, MOST_ALTERNATIVES)], 0)
    ask.measure(texts)
    answers = await ask.translate(texts, source, target, format=format, alternatives=more)
    columns: dict[str, list[Any]] = {"translatedText": [each[0] for each, _, _ in answers]}
    if source.lower() == AUTO:
        columns["detectedLanguage"] = [_detected(code, share) for _, code, share in answers]
    if more:
        columns["alternatives"] = [each[1:] for each, _, _ in answers]
    single = isinstance(fields["q"], str)
    return {name: values[0] if single else values for name, values in columns.items()}


async def _detect(ask: Asked) -> Any:
    texts = ask.fields.strings("q")
    ask.measure(texts)
    return [_detected(*each) for each in await asyncio.to_thread(ask.engine.catalogue.detect, " ".join(texts))]


async def _languages(request: Request) -> Response:
    """Targets as well as sources: clients look for both in this list."""
    catalogue = request.app.state.engine.catalogue
    targets = {code: [target for source, target in catalogue.pairs if source == code] for code in catalogue.languages}
    return JSONResponse([{**_named(code), "targets": found} for code, found in targets.items()])


async def _frontend_settings(request: Request) -> Response:
    engine, keys = request.app.state.engine, bool(request.app.state.access.keys)
    pair = next(iter(engine.catalogue.pairs), ())
    return JSONResponse(
        {
            "charLimit": engine.settings.text_limit,
            "frontendTimeout": _FRONTEND_TIMEOUT,
            "apiKeys": keys,
            "keyRequired": keys,
            "suggestions": False,
            "filesTranslation": bool(pair),
            "supportedFilesFormat": list(ENDINGS),
            "language": dict(zip(("source", "target"), map(_named, pair), strict=False)),
        }
    )


def _named(code: str) -> dict[str, Any]:
    return {"code": code, "name": language_name(code)}


def _detected(code: str, confidence: float) -> dict[str, Any]:
    return {"confidence": round(100 * confidence, 1), "language": code}


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


async def _translate_file(ask: Asked) -> Any:
    file, source, target = ask.fields.get("file"), ask.fields.read("source"), ask.fields.read("target")
    if not isinstance(file, UploadFile):
        raise MacaronError("the parameter file must be a file, sent as multipart/form-data")
    path = PurePath((file.filename or "").replace("\\", "/"))
    format = ENDINGS.get(path.suffix.lower())
    if format is None:
        raise MacaronError(f"files of this format are not supported: {', '.join(ENDINGS)} are")
    try:
        text = (await file.read()).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise MacaronError("the file is not UTF-8 text") from None
    [([translated], _, _)] = await ask.translate([text], source, target, format=format, deadline=_FILE_DEADLINE)
    ask.access.characters[ask.key] += len(text)
    name = f"{path.stem}.{ask.engine.catalogue.language(target)}{path.suffix}"
    token = ask.request.app.state.files.keep(name, translated.encode())
    return {"translatedFileUrl": f"{ask.request.base_url}download_file/{token}/{quote(name, safe='')}"}


async def _download_file(request: Request) -> Response:
    # A HEAD does not use the file up.
    file = request.app.state.files.fetch(request.path_params["token"]) if request.method == "GET" else None
    if file is None:
        raise HTTPException(404, "this file has been fetched already, has been removed, or never was here")
    # Never shown by a browser in the name of this server, whatever is in it.
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file[0], safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return Response(file[1], media_type="application/octet-stream", headers=headers)


#: The paths of the protocol, /health aside.
ROUTES = [
    route("/translate", _translate),
    route("/detect", _detect, limit=math.inf),
    Route("/languages", _languages),
    Route("/frontend/settings", _frontend_settings),
    route("/translate_file", _translate_file, limit=_FILE_DEADLINE),
    Route("/download_file/{token}/{name}", _download_file),
]
