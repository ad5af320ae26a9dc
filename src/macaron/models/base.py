"""What both kinds of models share: initialisation, masks, losses."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel

IGNORED = -100  # transformers' label for "no target here"


class MacaronPreTrainedModel(PreTrainedModel):
    """Base of all models: every module knows how to draw its own weights."""

    _supports_sdpa = True
    supports_gradient_checkpointing = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        # Each leaf draws its own weights, through functions of torch.nn.init, which leave alone what was loaded.
        reset = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()

    @property
    def kernel(self) -> str:
        """The attention kernel of ``attn_implementation``: sdpa unless eager is asked for."""
        return "eager" if self.config._attn_implementation == "eager" else "sdpa"


def real_tokens(ids: Tensor | None, mask: Tensor | None, pad_token_id: int) -> Tensor | None:
    """A boolean (B, T) mask of real tokens: the given one, otherwise all that is not padding."""
    if mask is not None:
        return mask.bool()
    return None if ids is None else ids != pad_token_id


def key_mask(real: Tensor | None) -> Tensor | None:
    """(B, S) as a mask over keys, (B, 1, 1, S)."""
    return None if real is None else real[:, None, None, :]


def token_loss(logits: Tensor, labels: Tensor, pad_token_id: int, **kwargs: Any) -> Tensor:
    """Cross-entropy over the labelled positions, in float32 at least.

    Labels of -100 and padding are no targets. The mean is over targets, or over ``num_items_in_batch`` where a
    trainer that accumulates gradients gives the number for the whole batch.

    :param logits: (..., V)
    :param labels: (...)
    """
    targets = labels.masked_fill(labels == pad_token_id, IGNORED).reshape(-1)
    precise = torch.promote_types(logits.dtype, torch.float32)
    total = F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).to(precise), targets, ignore_index=IGNORED, reduction="sum"
    )
    count = kwargs.get("num_items_in_batch")
    if count is None:
        count = (targets != IGNORED).sum().clamp(min=1)
    return total / count
