"""Hugging Face's tasks, as their client and servers speak them, and OpenAI's embeddings."""

import base64
import struct
from typing import Annotated, Any, Literal

from starlette.exceptions import HTTPException

from macaron.errors import MacaronError, unknown
from macaron.limits import Between
from macaron.models.catalogue import Catalogue, ServedModel
from macaron.serve.requests import Asked, Fields, route

#: Labels or words of an answer.
_MOST_ANSWERS = 1000
_EMBED = "feature_extraction"


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


_PATHS = ("/", "/pipeline/{task}", "/models/{model}", "/models/{model}/pipeline/{task}")
ROUTES = [*(route(path, _task) for path in _PATHS), route("/v1/embeddings", _embeddings)]
