"""DeepL's protocol, version 2. Languages are in capitals; English and Portuguese have two varieties each as targets."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from macaron.serve.catalogue import language_name
from macaron.serve.engine import Format
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
#: Options that would change the translation: to ignore them would be a lie.
_NOT_SUPPORTED = ("glossary_id", "glossary_ids", "style_id", "translation_memory_id", "custom_instructions")


class DeepL:
    """Handlers of requests."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def routes(self) -> list[Route]:
        """The paths of the protocol."""
        return [
            Route("/v2/translate", self.translate, methods=["POST"]),
            Route("/v2/usage", self.usage, methods=["GET", "POST"]),
            Route("/v2/languages", self.languages, methods=["GET", "POST"]),
        ]

    async def translate(self, request: Request) -> Response:
        """Texts into one language. Hints (context, formatting, model type) are ignored."""
        fields, key = await self.service.admit(request)
        if "text" not in fields or not (target := string(fields, "target_lang")):
            raise HTTPException(400, "text and target_lang are required")
        texts = strings(fields["text"], "text")
        refused = [name for name in _NOT_SUPPORTED if fields.get(name)]
        if refused or string(fields, "formality") in ("more", "less"):
            raise HTTPException(400, f"{(refused or ['formality'])[0]} is not supported by this server")
        tags = string(fields, "tag_handling")
        if tags not in ("", "xml", "html"):
            raise HTTPException(400, f"tag_handling must be xml or html, not {tags}")
        source = string(fields, "source_lang").lower() or AUTO
        self.service.measure(request, texts, key)
        patience = min(_PATIENCE, self.service.settings.deadline)
        format: Format = "html" if tags else "text"
        answers = await self.service.translate(request, texts, source, target, format, patience=patience)
        translations = [
            {
                "detected_source_language": each.source.upper(),
                "text": each.translated.text,
                "billed_characters": len(text),
            }
            for text, each in zip(texts, answers, strict=True)
        ]
        return JSONResponse({"translations": translations})

    async def usage(self, request: Request) -> Response:
        """Characters since the server has started, of this key."""
        key = self.service.access.identify(request, await read_fields(request))
        count = self.service.access.characters[key.secret if key else ""]
        return JSONResponse({"character_count": count, "character_limit": _UNLIMITED})

    async def languages(self, request: Request) -> Response:
        """Source or target languages."""
        fields = await read_fields(request)
        self.service.access.identify(request, fields)
        kind = string(fields, "type") or "source"
        if kind not in ("source", "target"):
            raise HTTPException(400, f"type must be source or target, not {kind}")
        names: dict[str, str] = {}
        for model in self.service.catalogue.translators:
            code = getattr(model, kind)
            names |= (kind == "target" and _VARIETIES.get(code)) or {code.upper(): language_name(code)}
        formality = {"supports_formality": False} if kind == "target" else {}
        return JSONResponse([{"language": code, "name": name, **formality} for code, name in names.items()])
