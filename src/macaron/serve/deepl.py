"""DeepL's protocol, version 2.

Languages are in capitals; English and Portuguese have two varieties each as targets, which are translated alike.
"""

from typing import Any, Literal

from macaron.errors import MacaronError
from macaron.models.catalogue import language_name
from macaron.serve.requests import AUTO, Asked, route

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


async def _translate(ask: Asked) -> Any:
    fields = ask.fields
    texts, target, source = fields.strings("text"), fields.read("target_lang"), fields.read("source_lang", str, AUTO)
    tags = fields.read("tag_handling", Literal["", "xml", "html"], "")
    refused = [name for name in _NOT_SUPPORTED if fields.get(name)]
    refused += ["formality"] if fields.read("formality", str, "") in ("more", "less") else []
    if refused:
        raise MacaronError(f"{refused[0]} is not supported by this server")
    ask.measure(texts)
    options = {"format": "html" if tags else "text", "deadline": min(_PATIENCE, ask.engine.settings.deadline)}
    answers = await ask.translate(texts, source, target, **options)
    translations = [
        {"detected_source_language": code.upper(), "text": each[0], "billed_characters": len(text)}
        for text, (each, code, _) in zip(texts, answers, strict=True)
    ]
    return {"translations": translations}


async def _usage(ask: Asked) -> Any:
    """Characters since the server has started."""
    return {"character_count": ask.access.characters[ask.key], "character_limit": _UNLIMITED}


async def _languages(ask: Asked) -> Any:
    is_target = ask.fields.read("type", Literal["source", "target"], "source") == "target"
    names: dict[str, str] = {}
    for pair in ask.engine.catalogue.pairs:
        code = pair[is_target]
        names |= (is_target and _VARIETIES.get(code)) or {code.upper(): language_name(code)}
    formality = {"supports_formality": False} if is_target else {}
    return [{"language": code, "name": name, **formality} for code, name in names.items()]


ROUTES = [
    route("/v2/translate", _translate),
    route("/v2/usage", _usage, ("GET", "POST"), work=False),
    route("/v2/languages", _languages, ("GET", "POST"), work=False),
]
