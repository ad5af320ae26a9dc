"""Writes a model folder as ONNX: graphs of our own networks, whatever their scheme and operators are.

A translation model is ``encoder.onnx``, which gives the keys and values that the decoder needs of a source, and
``decoder.onnx``, which continues any number of tokens after those in its cache; a language model is a decoder alone. An
encoder or a classifier is ``model.onnx``. ``onnx.json`` names their inputs and outputs, with shapes.
"""

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from macaron.errors import MacaronError, first_line, naming, require
from macaron.files import atomic_folder, check_unused, write_json
from macaron.models.encoder import EncoderForSequenceClassification
from macaron.models.load import ENCODER_HEADS, find_folder, load_model, model_kind
from macaron.models.translation import (
    DecoderNetwork,
    LanguageForSequenceClassification,
    LanguageModel,
    TranslationModel,
)
from macaron.nn.attention import KeyValueCache
from macaron.seal import seal
from macaron.text.load_tokenizer import model_tokenizer
from macaron.text.vocabulary import TokenizerKind

FORMAT = 1
#: How far the outputs of ONNX Runtime may be from ours, relative where ours are above 1.
TOLERANCE = 1e-4
#: Bytes of weights beyond which they are in a file of their own: a file of ONNX has less than 2 GiB.
_LARGEST = 2_000_000_000
_NETWORKS: dict[TokenizerKind, Any] = {
    "translation": TranslationModel,
    "encoder": EncoderForSequenceClassification,
    "language": LanguageForSequenceClassification,
}


class Graph(NamedTuple):
    """A file: its module, the tensors that it is recorded with, the names of their axes, and those of the outputs."""

    module: nn.Module
    inputs: dict[str, Tensor]
    axes: list[dict[int, str]]
    outputs: list[str]


class _Call(nn.Module):
    """A function of a model and of tensors as a module."""

    def __init__(self, model: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *given: Tensor) -> Any:
        """What the function returns."""
        return self.function(self.model, *given)


class _Cache(KeyValueCache):
    """A cache of which the content is given and taken as tensors (B, H, S, K): key and value of each slot in turn."""

    def __init__(self, past: Sequence[Tensor] = (), memory: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self._past, self._memory = (dict(enumerate(zip(x[::2], x[1::2], strict=True))) for x in (past, memory))

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The past, or the memory, by names such as ``past.0.key``."""
        slots = sorted((self._memory if name == "memory" else self._past).items())
        return {
            f"{name}.{n}.{part}": each for n, both in slots for part, each in zip(("key", "value"), both, strict=True)
        }


def _encode(model: TranslationModel, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """Source tokens (B, S) to what the decoder needs of them: its keys and values of the encoder's output."""
    real, cache = mask.bool(), _Cache()
    model.decode(ids[:, :1], model.encode(ids, real), real, cache)  # any token will do
    return list(cache.tensors("memory").values())


def _decode(past: int, model: DecoderNetwork, ids: Tensor, mask: Tensor, *cached: Tensor) -> list[Tensor]:
    """The next tokens (B, T) to logits (B, T, V), and the cache with them.

    The mask is that of the source, (B, S), or in a language model that of its tokens, those in the cache included.
    """
    cache, which = _Cache(cached[:past], cached[past:]), "target_real" if isinstance(model, LanguageModel) else "real"
    given: dict[str, Any] = {which: mask.bool()}
    return [model.logits(model.decode(ids, cache=cache, **given)), *cache.tensors("present").values()]


def _read(model: nn.Module, ids: Tensor, mask: Tensor, *segments: Tensor) -> Any:
    """Tokens (B, T) to states (B, T, D), or to a classifier's logits (B, labels)."""
    return model(ids, mask.bool(), *segments)


def graphs(model: Any) -> dict[str, Graph]:
    """The files of a model, by their names."""
    # No size is 1 or that of another axis: the exporter would take it for a constant.
    ids = torch.randint(4, model.config.vocab_size, (2, 7), generator=torch.Generator().manual_seed(1))
    mask, source, total = torch.ones_like(ids).tril(5), {0: "batch", 1: "source"}, {0: "batch", 1: "past + target"}
    first = {"input_ids": ids, "attention_mask": mask}
    if not isinstance(model, DecoderNetwork):
        if model.config.kind == "encoder":
            first["token_type_ids"] = torch.full_like(ids, model.config.first_segment)
        name = "logits" if isinstance(model, EncoderForSequenceClassification) else "last_hidden_state"
        return {"model.onnx": Graph(_Call(model, _read), first, [source] * len(first), [name])}
    crosses, cache = isinstance(model, TranslationModel), _Cache()
    with torch.no_grad():
        model.decode(ids[:, :5], model.encode(ids) if crosses else None, cache=cache)
    past, memory = cache.tensors("past"), cache.tensors("memory")
    masks = {"encoder_attention_mask": mask} if crosses else {"attention_mask": torch.ones(2, 8, dtype=torch.long)}
    axes = [{0: "batch", 1: "target"}, source if crosses else total]
    axes += [{0: "batch", 2: axis} for axis, each in (("past", past), ("source", memory)) for _ in each]
    inputs, outputs = {"input_ids": ids[:, :3], **masks, **past, **memory}, ["logits", *cache.tensors("present")]
    found = {"encoder.onnx": Graph(_Call(model, _encode), first, [source] * 2, list(memory))} if crosses else {}
    return {**found, "decoder.onnx": Graph(_Call(model, partial(_decode, len(past))), inputs, axes, outputs)}


def export_onnx(path: str | Path, out: str | Path) -> list[str]:
    """Write the model at a path (a model folder, or a run's) as ONNX, and compare it with ours in ONNX Runtime.

    :returns: what was written, in lines
    """
    out = Path(out)
    check_unused(out, "choose another --out")
    lacking = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    require(not lacking, f"{' and '.join(lacking)} cannot be found: pip install 'macaron-net[export]'")
    folder = find_folder(path)
    kind: TokenizerKind = model_kind(folder)
    model, drawn = load_model(folder, _NETWORKS[kind], torch.float32, () if kind == "translation" else ENCODER_HEADS)
    tokenizer = model_tokenizer(folder, kind, model.config)
    search = model.generation_config.to_diff_dict() if kind == "translation" else {}
    files = graphs(model.model if drawn else model)  # without a classifier
    with atomic_folder(out) as partial:
        tokenizer.save_pretrained(partial)
        with naming(folder):
            written = {name: _write(partial / name, graph) for name, graph in files.items()}
        stored = {"format": FORMAT, "files": written, "generation": search, "config": model.config.to_dict()}
        write_json(partial / "onnx.json", stored)
        found = "not compared with ours, since onnxruntime is not installed"
        if find_spec("onnxruntime"):
            error = max(difference(partial / name, graph) for name, graph in files.items())
            require(
                error <= TOLERANCE,
                f"{folder}: outputs of ONNX Runtime differ by {error:.1g} from ours; nothing is kept",
            )
            found = f"outputs of ONNX Runtime differ by {error:.0e} from ours"
        seal(partial)
    return [f"{' and '.join(files)}: {found}", f"written to {out} with onnx.json and the tokenizer"]


def _write(path: Path, graph: Graph) -> dict[str, Any]:
    """Write a graph; returns the names, types and shapes of its inputs and outputs."""
    import onnx

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it remarks on itself
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        try:
            program: Any = torch.onnx.export(
                graph.module.eval(),
                tuple(graph.inputs.values()),
                dynamo=True,
                dynamic_shapes=(tuple(graph.axes),),
                input_names=list(graph.inputs),
                output_names=graph.outputs,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = error.__cause__ if isinstance(error.__cause__, Exception) else error
            raise MacaronError(f"ONNX cannot hold this network ({path.stem}): {first_line(reason)}") from error
        size = sum(each.numel() * each.element_size() for each in graph.module.parameters())
        program.save(path, external_data=size > _LARGEST)
    written = onnx.load(path, load_external_data=False).graph
    return {
        side: {
            each.name: {
                "dtype": {1: "float32", 7: "int64"}[each.type.tensor_type.elem_type],
                "shape": [size.dim_param or size.dim_value for size in each.type.tensor_type.shape.dim],
            }
            for each in values
        }
        for side, values in (("inputs", written.input), ("outputs", written.output))
    }


def difference(path: Path, graph: Graph) -> float:
    """The largest difference of outputs in ONNX Runtime from ours, relative where ours are above 1."""
    from onnxruntime import InferenceSession

    session, largest = InferenceSession(path), 0.0
    for rows in (1, 2):  # another size than it was recorded with, too
        given = {name: tensor[-rows:] for name, tensor in graph.inputs.items()}
        found = session.run(None, {name: tensor.numpy() for name, tensor in given.items()})
        with torch.no_grad():
            wanted = graph.module(*given.values())
        for theirs, ours in zip(found, wanted if isinstance(wanted, list) else [wanted], strict=True):
            error = (torch.tensor(theirs) - ours).abs() / ours.abs().clamp(min=1)
            largest = max(largest, float(error.max()))
    return largest
