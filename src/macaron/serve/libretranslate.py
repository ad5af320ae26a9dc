"""LibreTranslate's protocol. Where ``q`` is a list, all parts of the answer are lists."""

import asyncio
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from macaron.decode.documents import ENDINGS
from macaron.serve.catalogue import language_name
from macaron.serve.files import Files
from macaron.serve.requests import string, strings, whole_number
from macaron.serve.service import AUTO, Service

#: Alternatives of a text.
MOST_ALTERNATIVES = 10
#: Milliseconds between the last key and a request, on LibreTranslate's page.
_FRONTEND_TIMEOUT = 500


class LibreTranslate:
    """Handlers of requests."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def routes(self) -> list[Route]:
        """The paths of the protocol, /health aside."""
        return [
            Route("/translate", self._translate, methods=["POST"]),
            Route("/detect", self._detect, methods=["POST"]),
            Route("/languages", self._languages),
            Route("/frontend/settings", self._frontend_settings),
            *Files(self.service).routes(),
        ]

    async def _translate(self, request: Request) -> Response:
        fields, key = await self.service.admit(request)
        texts, source, target = strings(fields, "q"), string(fields, "source"), string(fields, "target")
        format = string(fields, "format", "") or "text"
        if format not in ("text", "html"):
            raise HTTPException(400, f"the format {format[:20]} is not supported: text and html are")
        more = whole_number(fields, "alternatives", 0, MOST_ALTERNATIVES, 0)
        self.service.measure(request, texts, key)
        answers = await self.service.translate(request, texts, source, target, format=format, alternatives=more)
        columns: dict[str, list[Any]] = {"translatedText": [each.text for each, _, _ in answers]}
        if source.lower() == AUTO:
            columns["detectedLanguage"] = [_detected(code, share) for _, code, share in answers]
        if more:
            columns["alternatives"] = [each.alternatives for each, _, _ in answers]
        single = isinstance(fields["q"], str)
        return JSONResponse({name: values[0] if single else values for name, values in columns.items()})

    async def _detect(self, request: Request) -> Response:
        fields, key = await self.service.admit(request)
        texts = strings(fields, "q")
        self.service.measure(request, texts, key)
        found = await asyncio.to_thread(self.service.detect, " ".join(texts))
        return JSONResponse([_detected(*each) for each in found])

    async def _languages(self, _: Request) -> Response:
        """Targets as well as sources: clients look for both in this list."""
        catalogue = self.service.catalogue
        return JSONResponse([{**_named(code), "targets": catalogue.targets(code)} for code in catalogue.languages])

    async def _frontend_settings(self, _: Request) -> Response:
        keys, first = bool(self.service.access.keys), next(iter(self.service.catalogue.translators), None)
        return JSONResponse(
            {
                "charLimit": self.service.settings.text_limit,
                "frontendTimeout": _FRONTEND_TIMEOUT,
                "apiKeys": keys,
                "keyRequired": keys,
                "suggestions": False,
                "filesTranslation": first is not None,
                "supportedFilesFormat": list(ENDINGS),
                "language": {"source": _named(first.source), "target": _named(first.target)} if first else {},
            }
        )


def _named(code: str) -> dict[str, Any]:
    return {"code": code, "name": language_name(code)}


def _detected(code: str, confidence: float) -> dict[str, Any]:
    return {"confidence": round(100 * confidence, 1), "language": code}
