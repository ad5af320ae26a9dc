"""Hugging Face's tasks, as their client and servers speak them, and OpenAI's embeddings."""

import base64
import struct
from collections.abc import Sequence
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


class Inference:
    """Handlers of requests."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def routes(self) -> list[Route]:
        """The paths of both protocols. A path without a model means the first one that has the task."""
        paths = ("/", "/pipeline/{task}", "/models/{model}", "/models/{model}/pipeline/{task}")
        tasks = [Route(path, self._task, methods=["POST"]) for path in paths]
        return [*tasks, Route("/v1/embeddings", self._embeddings, methods=["POST"])]

    async def _task(self, request: Request) -> Response:
        fields, key = await self.service.admit(request)
        asked = request.path_params.get("task", "").replace("-", "_")
        model = self._model(request.path_params.get("model", ""), asked)
        task = asked or _tasks(model)[0]
        parameters = {**fields, **_section(fields, "parameters")}
        if task == "sentence_similarity":
            pair = _section(fields, "inputs")
            texts = [string(pair, "source_sentence"), *strings(pair, "sentences")]
        else:
            texts = strings(fields, "inputs")
        self.service.measure(request, texts, key)
        if task == "translation":
            source, target = (string(parameters, name, "") for name in ("src_lang", "tgt_lang"))
            answers = await self.service.translate(request, texts, source or model.source, target or model.target)
            return JSONResponse([{"translation_text": each.text} for each, _, _ in answers])
        if task == "sentence_similarity":
            first, *others = await self._vectors(request, model, texts)
            return JSONResponse([sum(a * b for a, b in zip(first, each, strict=True)) for each in others])
        if task == "feature_extraction":
            return JSONResponse(await self._vectors(request, model, texts, parameters.get("normalize") is not False))
        options: dict[str, Any] = {"top_k": whole_number(parameters, "top_k", 1, _MOST_ANSWERS, 5)}
        if task == "fill_mask" and "targets" in parameters:
            options["targets"] = strings(parameters, "targets")
        if task == "text_classification" and string(parameters, "function_to_apply", "softmax") != "softmax":
            raise HTTPException(400, "function_to_apply must be softmax")
        found = await while_connected(request, self.service.engine.call(model.name, task, texts, options))
        # Of one text: the words for its mask as a list, but its labels as a list in a list.
        return JSONResponse(found[0] if task == "fill_mask" and isinstance(fields["inputs"], str) else found)

    async def _embeddings(self, request: Request) -> Response:
        fields, key = await self.service.admit(request)
        model = self._model(string(fields, "model"), "feature_extraction")
        texts, encoding = strings(fields, "input"), string(fields, "encoding_format", "float")
        if encoding not in ("float", "base64"):
            raise HTTPException(400, "encoding_format must be float or base64")
        self.service.measure(request, texts, key)
        vectors = await self._vectors(request, model, texts)
        size = len(vectors[0]) if vectors else 0
        if whole_number(fields, "dimensions", 1, 10**6, size or 1) != size and vectors:
            raise HTTPException(400, f"dimensions must be {size}, as the model has them")
        data = [
            {"object": "embedding", "index": i, "embedding": vector if encoding == "float" else _packed(vector)}
            for i, vector in enumerate(vectors)
        ]
        # Nobody is billed here: tokens are not counted.
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return JSONResponse({"object": "list", "data": data, "model": model.name, "usage": usage})

    async def _vectors(
        self, request: Request, model: ServedModel, texts: Sequence[str], normalize: bool = True
    ) -> list[list[float]]:
        work = self.service.engine.call(model.name, "feature_extraction", texts, {"normalize": normalize})
        vectors: list[list[float]] = await while_connected(request, work)
        return vectors

    def _model(self, name: str, task: str) -> ServedModel:
        try:
            models = [self.service.catalogue.named(name)] if name else self.service.catalogue.models
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


def _section(fields: Fields, name: str) -> Fields:
    value = fields.get(name, {})
    if not isinstance(value, dict):
        raise HTTPException(400, f"{name} must be an object")
    return {key: each for key, each in value.items() if each is not None}


def _packed(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
