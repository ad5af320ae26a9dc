"""Where each weight of a fairseq model goes, and the way there."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from macaron.convert.checkpoint import Checkpoint

Names = dict[str, tuple[str, ...]]  # theirs -> ours; of several, each takes its share of the rows, in order

#: Version markers, a buffer of uninitialised memory, tables of sinusoids: nothing that was learned.
_NOT_WEIGHTS = tuple(
    f"{stack}.{name}"
    for stack in ("encoder", "decoder")
    for name in ("version", "embed_positions._float_tensor", "embed_positions.weights")
)
#: Other names of the one embedding table.
TABLES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.embed_out", "embed_out")
#: Norms of a decoder layer before they got names.
_OLD_NORMS = {"0": "self_attn_layer_norm", "1": "encoder_attn_layer_norm", "2": "final_layer_norm"}


def upgrade(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give the decoder's norms of the oldest checkpoints their later names."""
    result = {}
    for name, tensor in tensors.items():
        parts = name.split(".")
        if parts[:2] == ["decoder", "layers"] and len(parts) == 6 and parts[3] == "layer_norms":
            number = _OLD_NORMS.get(parts[4], "")
            name = ".".join([*parts[:3], number, parts[5]]) if number else name  # noqa: PLW2901
        result[name] = tensor
    return result


def _both(theirs: str, ours: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for kind in ("weight", "bias"):
        yield f"{theirs}.{kind}", (f"{ours}.{kind}",)


def stack_names(
    stack: str, layers: int, *, prefix: str = "", macaron: bool, norm: str, affine: bool, cross: bool = False
) -> Names:
    """Names of an encoder or decoder stack.

    The authors' first half-step was added last to the code: it is ``macaron_fc`` with the norm of index 2,
    while ``fc`` is our last G.

    :param prefix: of our names
    :param cross: the layers attend to an encoder
    """
    last = "G2" if macaron else "G1"
    norms = {"layer_norms.0": "F1", "layer_norms.1": last, "layer_norms.2": "G1"}
    if cross:
        norms = {
            "self_attn_layer_norm": "F1",
            "encoder_attn_layer_norm": "H1",
            "final_layer_norm": last,
            "macaron_layer_norm": "G1",
        }
    if not macaron:
        norms.popitem()  # the half-step's
    names: Names = {}
    for layer in range(layers):
        theirs, ours = f"{stack}.layers.{layer}", f"{prefix}{stack}.layers.{layer}.sublayers"
        for kind in ("weight", "bias"):
            names[f"{theirs}.self_attn.in_proj_{kind}"] = (f"{ours}.F1.operator.qkv.{kind}",)
            if cross:
                names[f"{theirs}.encoder_attn.in_proj_{kind}"] = (
                    f"{ours}.H1.operator.q.{kind}",
                    f"{ours}.H1.operator.kv.{kind}",
                )
        names.update(_both(f"{theirs}.self_attn.out_proj", f"{ours}.F1.operator.out"))
        if cross:
            names.update(_both(f"{theirs}.encoder_attn.out_proj", f"{ours}.H1.operator.out"))
        for linear in ("fc1", "fc2"):
            names.update(_both(f"{theirs}.{linear}", f"{ours}.{last}.operator.{linear}"))
            if macaron:
                names.update(_both(f"{theirs}.macaron_{linear}", f"{ours}.G1.operator.{linear}"))
        if affine:
            for their_norm, sublayer in norms.items():
                names.update(_both(f"{theirs}.{their_norm}", f"{ours}.{sublayer}.norm"))
    if affine and norm == "pre":
        names.update(_both(f"{stack}.layer_norm", f"{prefix}{stack}.norm"))
    return names


def head_names(kind: str) -> Names:
    """Names of what stands on the encoder of a ``bert`` or ``classifier`` model."""
    if kind == "classifier":
        return dict(_both("classifier", "classifier"))
    return {
        **dict(_both("mid_layer.0", "head.dense")),
        **dict(_both("mid_layer.2", "head.norm")),
        **dict(_both("classifier", "next_sentence")),
    }


def translate(checkpoint: Checkpoint, names: Names, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    """The checkpoint's weights under our names, in float32.

    Everything must be there, in the right shape, and nothing may be left over: a weight that we do not know is
    a part of the model that would be lost.

    :param shapes: of our parameters
    """
    left = set(checkpoint.tensors) - set(names) - set(_NOT_WEIGHTS) - set(TABLES)
    if left:
        raise checkpoint.error(
            f"{min(left)!r} ({len(left)} such) is no part of the model that the settings in 'args' describe; "
            "other architectures than the authors' cannot be converted"
        )
    result: dict[str, Tensor] = {}
    for theirs, ours in names.items():
        tensor = checkpoint.weight(theirs)
        rows = [shapes[name][0] for name in ours]
        expected = (sum(rows), *shapes[ours[0]][1:])
        if tuple(tensor.shape) != expected:
            raise checkpoint.error(
                f"{theirs!r} has shape {tuple(tensor.shape)}; by 'args' and the other weights: {expected}"
            )

        for name, part in zip(ours, torch.split(tensor, rows), strict=True):
            result[name] = part.to(torch.float32, copy=True).contiguous()
    return result
