"""Writes a model folder as ONNX: graphs of our own networks, whatever their scheme and operators are.

A translation model is ``encoder.onnx``, which gives the keys and values that the decoder needs of a source, and
``decoder.onnx``, which continues any number of tokens after those in its cache; a language model is a decoder alone. An
encoder or a classifier is ``model.onnx``. ``onnx.json`` names their inputs and outputs, with shapes.
"""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from macaron.errors import MacaronError, first_line, naming, require
from macaron.files import atomic_folder, check_unused, write_json
from macaron.models.encoder import EncoderForSequenceClassification
from macaron.models.load import ENCODER_HEADS, find_folder, load_model, model_kind
from macaron.models.network import Network
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
#: How far the outputs of ONNX Runtime may be from ours, where they are at most 1; and in proportion beyond.
TOLERANCE = 1e-4
#: Bytes of weights beyond which they are in a file of their own: a file of ONNX has less than 2 GiB.
_LARGEST = 2_000_000_000
#: The names of ONNX's types that graphs of ours have.
_DTYPES = {1: "float32", 7: "int64"}
_NETWORKS: dict[TokenizerKind, Any] = {
    "translation": TranslationModel,
    "encoder": EncoderForSequenceClassification,
    "language": LanguageForSequenceClassification,
}


class _Cache(KeyValueCache):
    """A cache whose content is given and taken as lists of (B, H, S, K): key and value of each slot in turn."""

    def __init__(self, past: Sequence[Tensor] = (), memory: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self._past, self._memory = (dict(enumerate(zip(each[::2], each[1::2], strict=True))) for each in (past, memory))

    @property
    def past(self) -> list[Tensor]:
        """Keys and values of the positions so far."""
        return [each for _, both in sorted(self._past.items()) for each in both]

    @property
    def of_source(self) -> list[Tensor]:
        """Keys and values of the encoder's output."""
        return [each for _, both in sorted(self._memory.items()) for each in both]


class _Encoder(nn.Module):
    """What the decoder needs of source tokens (B, S): its keys and values of the encoder's output."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """Those of each slot in turn."""
        real, cache = attention_mask.bool(), _Cache()
        self.model.decode(input_ids[:, :1], self.model.encode(input_ids, real), real, cache)  # any token will do
        return cache.of_source


class _Decoder(nn.Module):
    """Logits (B, T, V) after each of the next tokens (B, T), and the cache with them.

    The mask is that of the source, (B, S), or in a language model that of its tokens, those in the cache included.
    """

    def __init__(self, model: DecoderNetwork) -> None:
        super().__init__()
        self.model, self.crosses = model, isinstance(model, TranslationModel)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, past: list[Tensor], memory: list[Tensor]
    ) -> list[Tensor]:
        """The logits, then keys and values of each slot in turn."""
        cache, real = _Cache(past, memory), attention_mask.bool()
        masks: dict[str, Any] = {"real": real} if self.crosses else {"target_real": real}
        states = self.model.decode(input_ids, cache=cache, **masks)
        return [self.model.logits(states), *cache.past]


class _Text(nn.Module):
    """The states (B, T, D) of tokens (B, T), or the logits (B, labels) of a classifier."""

    def __init__(self, model: Network) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """As the model."""
        return self.model(input_ids, attention_mask.bool(), token_type_ids)


@dataclass
class _Graph:
    """One file: a module and the arguments that it is recorded with, the names of their axes and of the outputs."""

    module: nn.Module
    inputs: dict[str, Tensor | list[Tensor]]
    axes: tuple[Any, ...]
    outputs: list[str]


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
    model = model.model if drawn else model  # it has no classifier
    search = model.generation_config.to_diff_dict() if kind == "translation" else {}
    with atomic_folder(out) as partial:
        tokenizer.save_pretrained(partial)
        with naming(folder):
            files = {name: _write(partial / name, graph) for name, graph in _graphs(model).items()}
        stored = {"format": FORMAT, "files": files, "generation": search, "config": model.config.to_dict()}
        write_json(partial / "onnx.json", stored)
        error = difference(partial, model) if find_spec("onnxruntime") else None
        if error is not None and not error <= TOLERANCE:
            raise MacaronError(f"{folder}: outputs of ONNX Runtime differ by {error:.1g} from ours; nothing is kept")
        seal(partial)
    found = "not compared with ours, since onnxruntime is not installed"
    if error is not None:
        found = f"outputs of ONNX Runtime differ by {error:.0e} from ours"
    return [f"{' and '.join(files)}: {found}", f"written to {out} with onnx.json and the tokenizer"]


def _graphs(model: Any) -> dict[str, _Graph]:
    # Sizes of which none is 1 or that of another axis: the exporter would take them for constants.
    ids, mask = torch.full((2, 7), 4), torch.ones(2, 7, dtype=torch.long)
    first: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
    source, cache = {0: "batch", 1: "source"}, _Cache()
    if isinstance(model, TranslationModel):
        with torch.no_grad():
            model.decode(ids[:, :5], model.encode(ids), cache=cache)
        encoder = _Graph(_Encoder(model), first, (source, source), _names("memory", cache.of_source))
        return {
            "encoder.onnx": encoder,
            "decoder.onnx": _decoder(model, {"encoder_attention_mask": mask}, source, cache),
        }
    if isinstance(model, LanguageModel):
        with torch.no_grad():
            model.decode(ids[:, :5], cache=cache)
        given = {"attention_mask": torch.ones(2, 5 + 3, dtype=torch.long)}
        return {"decoder.onnx": _decoder(model, given, {0: "batch", 1: "all"}, cache)}
    if model.config.kind == "encoder":
        first["token_type_ids"] = torch.zeros_like(ids)
    name = "logits" if isinstance(model, EncoderForSequenceClassification) else "last_hidden_state"
    return {"model.onnx": _Graph(_Text(model), first, (source,) * len(first), [name])}


def _decoder(model: DecoderNetwork, mask: dict[str, Tensor], axes: dict[int, str], cache: _Cache) -> _Graph:
    """The graph of a decoder that continues three tokens after the five in the cache."""
    inputs: dict[str, Any] = {"input_ids": torch.full((2, 3), 4), **mask, "past": cache.past, "memory": cache.of_source}
    cached = ([{0: "batch", 2: axis}] * len(inputs[name]) for name, axis in (("past", "past"), ("memory", "source")))
    outputs = ["logits", *_names("present", cache.past)]
    return _Graph(_Decoder(model), inputs, ({0: "batch", 1: "target"}, axes, *cached), outputs)


def _names(name: str, value: Tensor | list[Tensor]) -> list[str]:
    """The name of a tensor, or those of the keys and values in a list."""
    if isinstance(value, Tensor):
        return [name]
    return [f"{name}.{slot}.{part}" for slot in range(len(value) // 2) for part in ("key", "value")]


def _write(path: Path, graph: _Graph) -> dict[str, Any]:
    """Write a graph; returns the names, types and shapes of its inputs and outputs."""
    import onnx

    inputs = [each for name, value in graph.inputs.items() for each in _names(name, value)]
    with _quietly(), torch.no_grad():
        try:
            program: Any = torch.onnx.export(
                graph.module.eval(),
                tuple(graph.inputs.values()),
                dynamo=True,
                dynamic_shapes=graph.axes,
                input_names=inputs,
                output_names=graph.outputs,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = error.__cause__ if isinstance(error.__cause__, Exception) else error
            raise MacaronError(f"ONNX cannot hold this network ({path.stem}): {first_line(reason)}") from error
        size = sum(each.numel() * each.element_size() for each in graph.module.parameters())
        program.save(path, external_data=size > _LARGEST)
    written = onnx.load(path, load_external_data=False).graph
    return {"inputs": _described(written.input), "outputs": _described(written.output)}


def _described(values: Any) -> dict[str, Any]:
    found = {}
    for each in values:
        tensor = each.type.tensor_type
        shape = [size.dim_param or size.dim_value for size in tensor.shape.dim]
        found[each.name] = {"dtype": _DTYPES[tensor.elem_type], "shape": shape}
    return found


@contextmanager
def _quietly() -> Iterator[None]:
    """A context without the exporter's remarks about itself."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)


def difference(folder: Path, model: Network) -> float:
    """The largest difference of outputs in ONNX Runtime from ours, relative where ours are above 1.

    Texts of several lengths are padded; a decoder takes a few tokens at once, then one by one.
    """
    from onnxruntime import InferenceSession

    sessions = {path.stem: InferenceSession(path) for path in folder.glob("*.onnx")}
    generator, largest = torch.Generator().manual_seed(1), 0.0
    for rows, length in ((1, 1), (1, 6), (3, 9)):
        ids = torch.randint(4, model.config.vocab_size, (rows, length), generator=generator)
        real = torch.arange(length) < torch.arange(length, length - rows, -1)[:, None]
        ids = ids.where(real, model.pad)
        given = {"input_ids": ids.numpy(), "attention_mask": real.long().numpy()}
        if "decoder" in sessions:
            found = _decoded(given, **sessions)
        else:
            segments = np.full_like(given["input_ids"], getattr(model.config, "first_segment", 0))
            more = {"token_type_ids": segments} if model.config.kind == "encoder" else {}
            (found,) = sessions["model"].run(None, given | more)
        with torch.no_grad():
            want = model(ids, ids if "encoder" in sessions else real)
        error = (torch.tensor(found) - want).abs() / want.abs().clamp(min=1)
        largest = max(largest, float((error[real] if error.dim() == 3 else error).max()))
    return largest


def _decoded(given: dict[str, Any], decoder: Any, encoder: Any = None) -> Any:
    """The logits (B, T, V) that the files give for the source as the target, or for a text."""
    ids, mask, logits = given["input_ids"], given["attention_mask"], []
    empty = (each for each in decoder.get_inputs() if each.name.startswith("past."))
    past = {each.name: np.zeros((len(ids), each.shape[1], 0, each.shape[3]), np.float32) for each in empty}
    memory = {}
    if encoder is not None:
        memory = dict(zip((each.name for each in encoder.get_outputs()), encoder.run(None, given), strict=True))
    start = 0
    for end in range(min(3, ids.shape[1]), ids.shape[1] + 1):
        masks = {"encoder_attention_mask": mask} if memory else {"attention_mask": mask[:, :end]}
        step, *present = decoder.run(None, {"input_ids": ids[:, start:end], **masks, **past, **memory})
        past, start = dict(zip(past, present, strict=True)), end
        logits.append(step)
    return np.concatenate(logits, axis=1)
