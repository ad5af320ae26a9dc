"""The protocols: LibreTranslate's, DeepL's version 2, Hugging Face's tasks and OpenAI's embeddings."""

import asyncio
import base64
import math
import secrets
import struct
from pathlib import PurePath
from typing import Annotated, Any, Literal
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from macaron.decode.documents import ENDINGS
from macaron.errors import MacaronError, unknown
from macaron.limits import Between
from macaron.models.catalogue import Catalogue, ServedModel, language_name
from macaron.serve.requests import AUTO, Asked, Fields, route

#: Alternatives of a text; labels or words of an answer.
_MOST_ALTERNATIVES, _MOST_ANSWERS = 10, 1000
#: Seconds until the translation of a file is given up.
_FILE_DEADLINE = 600.0
#: Lines, tags and sentences of a file, about: cutting a word list of 4 MiB would hold up all others for seconds.
_MOST_PARTS = 200_000
#: Milliseconds between the last key and a request, on LibreTranslate's page.
_FRONTEND_TIMEOUT = 500
#: DeepL's clients refuse the bare code as a target; the varieties are translated alike.
_VARIETIES = {
    "en": {"EN-US": "English (American)", "EN-GB": "English (British)"},
    "pt": {"PT-PT": "Portuguese (European)", "PT-BR": "Portuguese (Brazilian)"},
}
#: Seconds: DeepL's clients wait 10, and then ask again.
_DEEPL_DEADLINE = 9.0
#: These would change the translation, so they cannot be ignored; context, split_sentences and the like can.
_NOT_SUPPORTED = ("glossary_id", "glossary_ids", "style_id", "translation_memory_id", "custom_instructions")
_EMBED = "feature_extraction"


async def _translate(ask: Asked) -> Any:
    """Where ``q`` is a list, all parts of the answer are lists."""
    fields = ask.fields
    texts, source, target = fields.strings("q"), fields.read("source"), fields.read("target")
    format = fields.read("format", Literal["text", "html"], "text")
    more = fields.read("alternatives", Annotated[int, Between(0, _MOST_ALTERNATIVES)], 0)
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
    settings = {
        "charLimit": engine.settings.text_limit,
        "frontendTimeout": _FRONTEND_TIMEOUT,
        "apiKeys": keys,
        "keyRequired": keys,
        "suggestions": False,
        "filesTranslation": bool(pair),
        "supportedFilesFormat": list(ENDINGS),
        "language": dict(zip(("source", "target"), map(_named, pair), strict=False)),
    }
    return JSONResponse(settings)


def _named(code: str) -> dict[str, Any]:
    return {"code": code, "name": language_name(code)}


def _detected(code: str, confidence: float) -> dict[str, Any]:
    return {"confidence": round(100 * confidence, 1), "language": code}


class TranslatedFiles:
    """Names and contents of translated files, in memory, by tokens that nobody guesses.

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
    if sum(map(text.count, ("\n", "<", ". ", "! ", "? "))) > _MOST_PARTS:
        raise HTTPException(413, f"the file has more than {_MOST_PARTS:,} lines, tags and sentences: send it in parts")
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


async def _deepl_translate(ask: Asked) -> Any:
    fields = ask.fields
    texts, target, source = fields.strings("text"), fields.read("target_lang"), fields.read("source_lang", str, AUTO)
    tags = fields.read("tag_handling", Literal["", "xml", "html"], "")
    refused = [name for name in _NOT_SUPPORTED if fields.get(name)]
    refused += ["formality"] if fields.read("formality", str, "") in ("more", "less") else []
    if refused:
        raise MacaronError(f"{refused[0]} is not supported by this server")
    ask.measure(texts)
    options = {"format": "html" if tags else "text", "deadline": min(_DEEPL_DEADLINE, ask.engine.settings.deadline)}
    answers = await ask.translate(texts, source, target, **options)
    translations = [
        {"detected_source_language": code.upper(), "text": each[0], "billed_characters": len(text)}
        for text, (each, code, _) in zip(texts, answers, strict=True)
    ]
    return {"translations": translations}


async def _usage(ask: Asked) -> Any:
    """Characters since the server has started. DeepL gives this limit where there is none."""
    return {"character_count": ask.access.characters[ask.key], "character_limit": 10**12}


async def _deepl_languages(ask: Asked) -> Any:
    is_target = ask.fields.read("type", Literal["source", "target"], "source") == "target"
    names: dict[str, str] = {}
    for pair in ask.engine.catalogue.pairs:
        code = pair[is_target]
        names |= (is_target and _VARIETIES.get(code)) or {code.upper(): language_name(code)}
    formality = {"supports_formality": False} if is_target else {}
    return [{"language": code, "name": name, **formality} for code, name in names.items()]


async def _task(ask: Asked) -> Any:
    path = ask.request.path_params
    wanted = path.get("task", "").replace("-", "_")
    model = _model(ask.engine.catalogue, path.get("model", ""), wanted)
    task = wanted or model.tasks[0]
    parameters = Fields({**ask.fields, **ask.fields.section("parameters")})
    if task == "sentence_similarity":
        pair = ask.fields.section("inputs")
        texts = [pair.read("source_sentence"), *pair.strings("sentences")]
    else:
        texts = ask.fields.strings("inputs")
    ask.measure(texts)
    if task == "translation":
        source, target = parameters.read("src_lang", str, model.source), parameters.read("tgt_lang", str, model.target)
        answers = await ask.translate(texts, source, target)
        return [{"translation_text": each[0]} for each, _, _ in answers]
    if task == "sentence_similarity":
        [[first, *others]] = await ask.engine.do(model.name, _EMBED, [texts], {})
        return [sum(a * b for a, b in zip(first, each, strict=True)) for each in others]
    if task == _EMBED:
        normalize = parameters.get("normalize") is not False
        return (await ask.engine.do(model.name, _EMBED, [texts], {"normalize": normalize}))[0]
    options: dict[str, Any] = {"top_k": parameters.read("top_k", Annotated[int, Between(1, _MOST_ANSWERS)], 5)}
    if task == "fill_mask" and parameters.get("targets") is not None:
        options["targets"] = parameters.strings("targets")
    if task == "text_classification":
        parameters.read("function_to_apply", Literal["softmax"], "softmax")
    [found] = await ask.engine.do(model.name, task, [texts], options)
    # Of one text: the words for its mask as a list, but its labels as a list in a list.
    return found[0] if task == "fill_mask" and isinstance(ask.fields["inputs"], str) else found


async def _embeddings(ask: Asked) -> Any:
    model = _model(ask.engine.catalogue, ask.fields.read("model"), _EMBED)
    encoding = ask.fields.read("encoding_format", Literal["float", "base64"], "float")
    texts = ask.fields.strings("input")
    ask.measure(texts)
    [vectors] = await ask.engine.do(model.name, _EMBED, [texts], {})
    size = len(vectors[0]) if vectors else 0
    if vectors and ask.fields.read("dimensions", int, size) != size:
        raise MacaronError(f"dimensions must be {size}, as the model has them")

    def packed(vector: list[float]) -> list[float] | str:
        return vector if encoding == "float" else base64.b64encode(struct.pack(f"<{size}f", *vector)).decode()

    data = [{"object": "embedding", "index": i, "embedding": packed(vector)} for i, vector in enumerate(vectors)]
    # Nobody is billed here: tokens are not counted.
    usage = {"prompt_tokens": 0, "total_tokens": 0}
    return {"object": "list", "data": data, "model": model.name, "usage": usage}


def _model(catalogue: Catalogue, name: str, task: str) -> ServedModel:
    """The model of a name, or the first one that has the task."""
    if name and name not in catalogue.models:
        raise HTTPException(404, str(unknown("model", name[:100], catalogue.models)))
    models = [catalogue.models[name]] if name else list(catalogue.models.values())
    able = [model for model in models if not task or task in model.tasks]
    if not able:
        known = ", ".join(dict.fromkeys(each for model in models for each in model.tasks))
        raise HTTPException(404, f"no model here has the task {task[:40]!r}: there is {known}")
    return able[0]


ROUTES = [
    route("/translate", _translate),
    route("/detect", _detect, limit=math.inf),
    Route("/languages", _languages),
    Route("/frontend/settings", _frontend_settings),
    route("/translate_file", _translate_file, limit=_FILE_DEADLINE),
    Route("/download_file/{token}/{name}", _download_file),
    route("/v2/translate", _deepl_translate),
    route("/v2/usage", _usage, ("GET", "POST"), work=False),
    route("/v2/languages", _deepl_languages, ("GET", "POST"), work=False),
    *(route(path, _task) for path in ("/", "/pipeline/{task}", "/models/{model}", "/models/{model}/pipeline/{task}")),
    route("/v1/embeddings", _embeddings),
]
