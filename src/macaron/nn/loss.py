"""Output projection and label-smoothed cross-entropy in one, in chunks.

The logits of a batch, tokens x vocabulary in float32, would be by far its largest tensor, and autograd would keep
several of that size. Here a chunk's logits are turned into its loss and its gradients at once, and never kept.
"""

from typing import Any

import torch
from torch import Tensor, nn

CHUNK = {"cpu": 1024, "cuda": 8192}  # rows of logits held at a time


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, targets: Tensor, smoothing: float, ignored: int, chunk: int
    ) -> Tensor:
        """States (N, D), output embedding (V, D), targets (N,) to the sums (2,) of smoothed loss and nll."""
        need_states, need_weight = ctx.needs_input_grad[:2]
        classes = weight.shape[0]
        # Under autocast the products run in its precision; sums, softmax and gradients of weights are in float32.
        if torch.is_autocast_enabled(states.device.type):
            kind = torch.get_autocast_dtype(states.device.type)
            rows, matrix = states.to(kind), weight.to(kind)
        else:
            rows, matrix = states, weight
        exact = torch.promote_types(rows.dtype, torch.float32)
        sums = torch.zeros(2, dtype=exact, device=states.device)
        d_states = torch.empty_like(rows) if need_states else None
        d_weight = torch.zeros(weight.shape, dtype=exact, device=weight.device) if need_weight else None
        with torch.autocast(states.device.type, enabled=False):
            for start in range(0, len(rows), chunk):
                part, goal = rows[start : start + chunk], targets[start : start + chunk]
                real = goal != ignored
                logits = (part @ matrix.T).to(exact)
                normaliser = logits.logsumexp(-1)
                nll = (normaliser - logits.gather(-1, goal.unsqueeze(-1)).squeeze(-1)) * real
                loss = (1 - smoothing) * nll + smoothing * (normaliser - logits.mean(-1)) * real
                sums += torch.stack([loss.sum(), nll.sum()])
                if d_states is None and d_weight is None:
                    continue
                # d loss / d logits = softmax - (1 - e) [target] - e / V, written over the logits.
                slope = logits.sub_(normaliser.unsqueeze(-1)).exp_().sub_(smoothing / classes)
                slope.scatter_add_(-1, goal.unsqueeze(-1), slope.new_full((len(goal), 1), smoothing - 1))
                slope = slope.mul_(real.unsqueeze(-1)).to(rows.dtype)
                if d_states is not None:
                    torch.mm(slope, matrix, out=d_states[start : start + chunk])
                if d_weight is not None:
                    d_weight += slope.T @ part
        ctx.save_for_backward(d_states, d_weight)
        ctx.kinds = states.dtype, weight.dtype
        return sums

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Only the smoothed loss is differentiated; nll is for the log."""
        d_states, d_weight = ctx.saved_tensors
        scale = gradients[0][0]
        if d_states is not None:
            d_states = (d_states * scale).to(ctx.kinds[0])
        if d_weight is not None:
            d_weight = (d_weight * scale).to(ctx.kinds[1])
        return d_states, d_weight, None, None, None, None


class SmoothedCrossEntropy(nn.Module):
    """The sums of smoothed loss and nll over real targets, from states and the output embedding.

    The smoothed loss is (1 - e) nll + e times the mean over the vocabulary of -log p, as in the authors' code.

    :param ignored: the target that is none (padding)
    :param chunk: rows of logits held at a time; by default as suits the device
    """

    def __init__(self, smoothing: float, ignored: int, chunk: int | None = None) -> None:
        super().__init__()
        self.smoothing, self.ignored, self.chunk = smoothing, ignored, chunk

    def forward(self, states: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        """States (..., D), output embedding (V, D), targets (...) to the two sums, (2,)."""
        flat = states.reshape(-1, states.shape[-1])
        chunk = self.chunk or CHUNK.get(states.device.type, CHUNK["cpu"])
        sums: Tensor = _SmoothedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            flat, weight, targets.reshape(-1), self.smoothing, self.ignored, chunk
        )
        return sums
