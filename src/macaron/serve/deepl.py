"""DeepL's protocol, version 2. Languages are in capitals; English and Portuguese have two varieties each as targets."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from macaron.serve.catalogue import language_name
from macaron.serve.requests import read_fields, string, strings
from macaron.serve.service import AUTO, Service

#: The clients refuse the bare code as a target.
_VARIETIES = {
    "en": {"EN-US": "English (American)", "EN-GB": "English (British)"},
    "pt": {"PT-PT": "Portuguese (European)", "PT-BR": "Portuguese (Brazilian)"},
}
#: Seconds: the clients wait 10, and then ask again.
_PATIENCE = 9.0
#: What DeepL says where there is no limit.
_UNLIMITED = 10**12
#: These would change the translation, so they cannot be ignored; context, split_sentences and the like can.
_NOT_SUPPORTED = ("glossary_id", "glossary_ids", "style_id", "translation_memory_id", "custom_instructions")


class DeepL:
    """Handlers of requests."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def routes(self) -> list[Route]:
        """The paths of the protocol."""
        return [
            Route("/v2/translate", self._translate, methods=["POST"]),
            Route("/v2/usage", self._usage, methods=["GET", "POST"]),
            Route("/v2/languages", self._languages, methods=["GET", "POST"]),
        ]

    async def _translate(self, request: Request) -> Response:
        fields, key = await self.service.admit(request)
        texts, target, tags = strings(fields, "text"), string(fields, "target_lang"), string(fields, "tag_handling", "")
        refused = [name for name in _NOT_SUPPORTED if fields.get(name)]
        refused += ["formality"] if string(fields, "formality", "") in ("more", "less") else []
        if refused:
            raise HTTPException(400, f"{refused[0]} is not supported by this server")
        if tags not in ("", "xml", "html"):
            raise HTTPException(400, f"tag_handling must be xml or html, not {tags[:20]}")
        self.service.measure(request, texts, key)
        source, patience = string(fields, "source_lang", "") or AUTO, min(_PATIENCE, self.service.settings.deadline)
        options = {"format": "html" if tags else "text", "deadline": patience}
        answers = await self.service.translate(request, texts, source, target, **options)
        translations = [
            {"detected_source_language": code.upper(), "text": each.text, "billed_characters": len(text)}
            for text, (each, code, _) in zip(texts, answers, strict=True)
        ]
        return JSONResponse({"translations": translations})

    async def _usage(self, request: Request) -> Response:
        """Characters since the server has started."""
        key = self.service.access.identify(request, await read_fields(request))
        return JSONResponse({"character_count": self.service.access.characters[key], "character_limit": _UNLIMITED})

    async def _languages(self, request: Request) -> Response:
        fields = await read_fields(request)
        self.service.access.identify(request, fields)
        is_target = string(fields, "type", "source") == "target"
        names: dict[str, str] = {}
        for model in self.service.catalogue.translators:
            code = model.target if is_target else model.source
            names |= (is_target and _VARIETIES.get(code)) or {code.upper(): language_name(code)}
        formality = {"supports_formality": False} if is_target else {}
        return JSONResponse([{"language": code, "name": name, **formality} for code, name in names.items()])
