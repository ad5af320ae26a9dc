"""The names of fairseq's weights and ours, and the renaming."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from macaron.convert.checkpoint_config import TABLES, CheckpointKind
from macaron.convert.fairseq_checkpoint import FairseqCheckpoint
from macaron.models.configuration import EncoderConfig, TranslationConfig

Names = dict[str, tuple[str, ...]]  # fairseq's -> ours; several of ours split the rows, in order

#: Not weights: version markers, uninitialised buffers, tables of sinusoids.
_NOT_WEIGHTS = tuple(
    f"{stack}.{name}"
    for stack in ("encoder", "decoder")
    for name in ("version", "embed_positions._float_tensor", "embed_positions.weights")
)
#: A decoder layer's norms; the oldest checkpoints have numbers instead.
_OLD_NORMS = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
_HEADS: dict[CheckpointKind, dict[str, str]] = {
    "translation": {},
    "bert": {"mid_layer.0": "head.dense", "mid_layer.2": "head.norm", "classifier": "next_sentence"},
    "classifier": {"classifier": "classifier"},
}


def upgrade(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the decoder norms of the oldest checkpoints."""
    old = re.compile(r"^(decoder\.layers\.\d+)\.layer_norms\.([012])\.")
    return {old.sub(lambda found: f"{found[1]}.{_OLD_NORMS[int(found[2])]}.", name): t for name, t in tensors.items()}


def weight_names(config: TranslationConfig | EncoderConfig, kind: CheckpointKind) -> Names:
    """fairseq's name of every weight of a model, and ours."""
    if isinstance(config, TranslationConfig):
        return {
            TABLES[0]: ("embedding.tokens.weight",),
            **_stack_names("encoder", config.encoder_layers, config),
            **_stack_names("decoder", config.decoder_layers, config, cross=True),
        }
    return {
        TABLES[0]: ("model.embedding.tokens.weight",),
        "encoder.embed_segment.weight": ("model.embedding.segments.weight",),
        **_stack_names("encoder", config.num_hidden_layers, config, prefix="model."),
        **_parameters({f"{theirs}.": (ours,) for theirs, ours in _HEADS[kind].items()}),
    }


def _stack_names(stack: str, layers: int, config: Any, *, prefix: str = "", cross: bool = False) -> Names:
    """The names of an encoder or decoder stack.

    The authors added the first half-step last: it is ``macaron_fc`` with the third norm, and ``fc`` is our last G.
    """
    macaron = config.scheme == "strang-gfg"
    last = "G2" if macaron else "G1"
    # For each module of a layer the prefix of fairseq's parameters, and our module or modules.
    modules: Names = {
        "self_attn.in_proj_": ("F1.operator.qkv",),
        "self_attn.out_proj.": ("F1.operator.out",),
        "fc1.": (f"{last}.operator.fc1",),
        "fc2.": (f"{last}.operator.fc2",),
    }
    norms = {"layer_norms.0.": "F1", "layer_norms.1.": last, "layer_norms.2.": "G1"}
    if cross:
        modules |= {
            "encoder_attn.in_proj_": ("H1.operator.q", "H1.operator.kv"),
            "encoder_attn.out_proj.": ("H1.operator.out",),
        }
        named = zip((*_OLD_NORMS, "macaron_layer_norm"), ("F1", "H1", last, "G1"), strict=True)
        norms = {f"{name}.": ours for name, ours in named}
    if macaron:
        modules |= {"macaron_fc1.": ("G1.operator.fc1",), "macaron_fc2.": ("G1.operator.fc2",)}
    else:
        norms.popitem()  # of the half-step
    if config.norm_affine:
        modules |= {theirs: (f"{ours}.norm",) for theirs, ours in norms.items()}
    names: Names = {}
    for layer in range(layers):
        theirs, ours = f"{stack}.layers.{layer}.", f"{prefix}{stack}.layers.{layer}.sublayers."
        names |= _parameters({theirs + name: tuple(ours + part for part in parts) for name, parts in modules.items()})
    if config.norm_affine and config.norm == "pre":
        names |= _parameters({f"{stack}.layer_norm.": (f"{prefix}{stack}.norm",)})
    return names


def _parameters(modules: Names) -> Names:
    return {
        f"{theirs}{kind}": tuple(f"{part}.{kind}" for part in ours)
        for theirs, ours in modules.items()
        for kind in ("weight", "bias")
    }


def rename(checkpoint: FairseqCheckpoint, names: Names, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    """The checkpoint's weights under our names, in float32.

    All weights must be present, in the right shape, and none may be left over: an unknown weight is a part of the
    model that would be lost.
    """
    left = set(checkpoint.tensors) - set(names) - set(_NOT_WEIGHTS) - set(TABLES)
    if left:
        raise checkpoint.error(
            f"{min(left)!r} ({len(left)} such) is not part of the model that 'args' describes; only the authors' "
            "architectures can be converted"
        )
    result: dict[str, Tensor] = {}
    for theirs, ours in names.items():
        tensor = checkpoint.weight(theirs)
        rows = [shapes[name][0] for name in ours]
        expected = (sum(rows), *shapes[ours[0]][1:])
        if tuple(tensor.shape) != expected:
            raise checkpoint.error(
                f"{theirs!r} has shape {tuple(tensor.shape)}; 'args' and the other weights require {expected}"
            )
        for name, part in zip(ours, torch.split(tensor, rows), strict=True):
            result[name] = part.to(torch.float32, copy=True).contiguous()
    return result
