"""A model prepared for translating on the CPU: the same network with packed matrices, in float32 or in int8.

Stacks, sub-layers and the embedding are exchanged (`macaron.decode.packed_layers`). Schemes, integrators, tying and
the search are the same code as ever.
"""

import copy
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from macaron.decode.matrices import Int8Linear, PackedLinear, check_int8, threads_for_products
from macaron.decode.packed_attention import FEW, Make
from macaron.decode.packed_layers import PackedEmbedding, PackedStack, PackedSubLayer, straight
from macaron.errors import MacaronError
from macaron.models.translation import TranslationModel
from macaron.nn.layer import SubLayer


class PackedTranslationModel(TranslationModel):
    """A translation model with packed matrices. It translates; it can neither be trained nor moved nor saved."""

    projection: nn.Module

    def train(self, mode: bool = True) -> "PackedTranslationModel":
        """Nothing: it cannot be trained, and to ask every part of it takes a hundredth of a sentence's time."""
        return self

    def logits(self, states: Tensor) -> Tensor:
        """States (..., D) to logits (..., V)."""
        return self.projection(states)


def searching(model: TranslationModel, sentences: int) -> AbstractContextManager[None]:
    """A context for searching with a model: for few sentences a packed one uses all threads for its products only."""
    few = isinstance(model, PackedTranslationModel) and sentences < FEW
    return threads_for_products() if few else nullcontext()


def packed(model: TranslationModel, int8: bool = False) -> TranslationModel:
    """A copy of a float32 model on the CPU with packed matrices. Norms and embeddings are shared with the model.

    :param int8: matrices in 8 bits, with a scale for each row; what they are multiplied by is rounded, too
    """
    table = model.embedding.tokens.weight
    if table.device.type != "cpu" or table.dtype != torch.float32:
        raise MacaronError(f"only a float32 model on the CPU can be packed, not {table.dtype} on {table.device}")
    if isinstance(model, PackedTranslationModel):
        raise MacaronError("the model is packed already")
    if int8:
        check_int8()
    make: Make = Int8Linear if int8 else PackedLinear
    # What the copy finds here it takes as it is. So parameters are shared, and sub-layers that are tied stay tied.
    memo: dict[int, object] = {id(parameter): parameter for parameter in model.parameters()}
    sublayers: dict[int, PackedSubLayer] = {}
    ways = [straight(stack) for stack in (model.encoder, model.decoder)]
    steps = {id(sublayer): step for way in ways for sublayer, step, _ in way or ()}
    for module in model.modules():
        if isinstance(module, SubLayer):
            sublayers[id(module)] = PackedSubLayer(module, make, steps.get(id(module)))
    memo |= sublayers
    memo[id(model.embedding)] = PackedEmbedding(model.embedding)
    clone: TranslationModel = copy.deepcopy(model, memo).eval()
    clone.__class__ = PackedTranslationModel
    clone.projection = make(table, None)
    for stack, way in zip((clone.encoder, clone.decoder), ways, strict=True):
        stack.__class__ = PackedStack
        assert isinstance(stack, PackedStack)
        stack.moves = None if way is None else [(sublayers[id(sublayer)], slot) for sublayer, _, slot in way]
    return clone
