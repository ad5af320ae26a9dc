"""Hugging Face's tasks, as their client and servers speak them, and OpenAI's embeddings."""

import base64
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from macaron.errors import MacaronError
from macaron.serve.catalogue import ServedModel
from macaron.serve.requests import Fields, string, strings, while_connected, whole_number
from macaron.serve.service import Service

#: Labels or words of an answer.
_MOST_ANSWERS = 1000
Vectors = list[list[float]]


class Inference:
    """Handlers of requests."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def routes(self) -> list[Route]:
        """The paths of both protocols. A path without a model means the first one that has the task."""
        paths = ("/", "/pipeline/{task}", "/models/{model}", "/models/{model}/pipeline/{task}")
        tasks = [Route(path, self.task, methods=["POST"]) for path in paths]
        return [*tasks, Route("/v1/embeddings", self.embeddings, methods=["POST"])]

    async def task(self, request: Request) -> Response:
        """One task of one model; by default the task that the model was made for."""
        fields, key = await self.service.admit(request)
        asked = request.path_params.get("task", "").replace("-", "_")
        model = self._model(request.path_params.get("model"), asked)
        task = asked or _tasks(model)[0]
        parameters = {**fields, **_section(fields, "parameters")}
        if task == "sentence_similarity":
            pair = _section(fields, "inputs")
            texts = [string(pair, "source_sentence"), *strings(pair.get("sentences"), "inputs.sentences")]
        else:
            texts = strings(fields.get("inputs"), "inputs")
        self.service.measure(request, texts, key)
        if task == "translation":
            return JSONResponse(await self._translation(request, model, texts, parameters))
        if task == "sentence_similarity":
            first, *others = await self._vectors(request, model, texts)
            return JSONResponse([sum(a * b for a, b in zip(first, each, strict=True)) for each in others])
        if task == "feature_extraction":
            return JSONResponse(await self._vectors(request, model, texts, parameters.get("normalize") is not False))
        options: dict[str, Any] = {"top_k": whole_number(parameters, "top_k", 1, _MOST_ANSWERS, 5)}
        if task == "fill_mask" and "targets" in parameters:
            options["targets"] = strings(parameters["targets"], "targets")
        if task == "text_classification" and string(parameters, "function_to_apply", "softmax") != "softmax":
            raise HTTPException(400, "function_to_apply must be softmax")
        found = await while_connected(request, self.service.engine.call(model.name, task, texts, options))
        # Of one text: the words for a mask as a list, but labels as a list in a list.
        return JSONResponse(found[0] if task == "fill_mask" and isinstance(fields["inputs"], str) else found)

    async def embeddings(self, request: Request) -> Response:
        """Vectors of length 1."""
        fields, key = await self.service.admit(request)
        model = self._model(string(fields, "model") or None, "feature_extraction")
        texts = strings(fields.get("input"), "input")
        encoding = string(fields, "encoding_format", "float")
        if encoding not in ("float", "base64"):
            raise HTTPException(400, "encoding_format must be float or base64")
        self.service.measure(request, texts, key)
        vectors = await self._vectors(request, model, texts)
        size = len(vectors[0]) if vectors else 0
        if whole_number(fields, "dimensions", 1, 10**6, size or 1) != size:
            raise HTTPException(400, f"dimensions must be {size}, as the model has them")
        data = [
            {"object": "embedding", "index": i, "embedding": vector if encoding == "float" else _packed(vector)}
            for i, vector in enumerate(vectors)
        ]
        # Nobody is billed here: tokens are not counted.
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return JSONResponse({"object": "list", "data": data, "model": model.name, "usage": usage})

    async def _translation(
        self, request: Request, model: ServedModel, texts: Sequence[str], parameters: Fields
    ) -> list[dict[str, str]]:
        source, target = (string(parameters, name) for name in ("src_lang", "tgt_lang"))
        answers = await self.service.translate(request, texts, source or model.source, target or model.target)
        return [{"translation_text": each.translated.text} for each in answers]

    async def _vectors(
        self, request: Request, model: ServedModel, texts: Sequence[str], normalize: bool = True
    ) -> Vectors:
        work = self.service.engine.call(model.name, "feature_extraction", list(texts), {"normalize": normalize})
        vectors: Vectors = await while_connected(request, work)
        return vectors

    def _model(self, name: str | None, task: str) -> ServedModel:
        try:
            models = [self.service.catalogue.named(name)] if name else list(self.service.catalogue.models)
        except MacaronError as error:
            raise HTTPException(404, str(error)) from None
        able = [model for model in models if not task or task in _tasks(model)]
        if not able:
            known = ", ".join(dict.fromkeys(each for model in models for each in _tasks(model)))
            raise HTTPException(404, f"no model here has the task {task[:40]!r}: there is {known}")
        return able[0]


def _tasks(model: ServedModel) -> tuple[str, ...]:
    """The tasks of a model, its own first."""
    if model.kind == "translation":
        return ("translation",)
    return ("text_classification" if model.labels else "fill_mask", "feature_extraction", "sentence_similarity")


def _section(fields: Fields, name: str) -> Mapping[str, Any]:
    value = fields.get(name, {})
    if not isinstance(value, Mapping):
        raise HTTPException(400, f"{name} must be an object")
    return {key: each for key, each in value.items() if each is not None}


def _packed(vector: list[float]) -> str:
    """Numbers as OpenAI packs them: float32, little-endian, base64."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
