"""The names of fairseq's weights and ours, and the renaming."""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from macaron.convert.checkpoint_config import TABLES, CheckpointKind
from macaron.convert.fairseq_checkpoint import FairseqCheckpoint
from macaron.models.configuration import EncoderConfig, TranslationConfig
from macaron.settings import load_toml

Names = dict[str, tuple[str, ...]]  # fairseq's -> ours; several of ours split the rows, in order

_TABLE = load_toml(Path(__file__).with_name("families.toml"))[0]["fairseq"]
#: Not weights: version markers, uninitialised buffers, tables of sinusoids.
_NOT_WEIGHTS = tuple(
    f"{stack}.{name}"
    for stack in ("encoder", "decoder")
    for name in ("version", "embed_positions._float_tensor", "embed_positions.weights")
)
#: A decoder layer's norms; the oldest checkpoints have numbers instead.
_OLD_NORMS = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")


def upgrade(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the decoder norms of the oldest checkpoints."""
    old = re.compile(r"^(decoder\.layers\.\d+)\.layer_norms\.([012])\.")
    return {old.sub(lambda found: f"{found[1]}.{_OLD_NORMS[int(found[2])]}.", name): t for name, t in tensors.items()}


def weight_names(config: TranslationConfig | EncoderConfig, kind: CheckpointKind) -> Names:
    """fairseq's name of every weight of a model, and ours."""
    if isinstance(config, TranslationConfig):
        prefix, layers = "", {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
        names: Names = {}
    else:
        prefix, layers = "model.", {"encoder": config.num_hidden_layers}
        names = {"encoder.embed_segment.weight": ("model.embedding.segments.weight",)}
    modules = {theirs: (ours,) for theirs, ours in _TABLE["heads"][kind].items()}
    for stack, count in layers.items():
        for theirs, ours in _TABLE[config.scheme][stack].items():
            for layer in range(count) if config.norm_affine or not ours.endswith(".norm") else ():
                place = f"{prefix}{stack}.layers.{layer}.sublayers."
                modules[f"{stack}.layers.{layer}.{theirs}"] = tuple(place + part for part in ours.split())
        if config.norm_affine and config.norm == "pre":
            modules[f"{stack}.layer_norm."] = (f"{prefix}{stack}.norm",)
    parameters = {
        f"{theirs}{kind}": tuple(f"{part}.{kind}" for part in ours)
        for theirs, ours in modules.items()
        for kind in ("weight", "bias")
    }
    return {TABLES[0]: (f"{prefix}embedding.tokens.weight",), **names, **parameters}


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
