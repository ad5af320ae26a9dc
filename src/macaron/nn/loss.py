"""Output projection fused with label-smoothed cross-entropy, computed in chunks.

The logits of a batch, tokens x vocabulary in float32, would be by far its largest tensor, and autograd would keep
several of that size. Here the loss and the gradients of a chunk are computed from its logits at once; logits are not
kept.
"""

from typing import Any

import torch
from torch import Tensor, nn

from macaron.nn.fused_functions import chunk_loss

CHUNK = {"cpu": 1024, "cuda": 8192}  # rows of logits held at a time


class ChunkLoss(nn.Module):
    """The losses of a chunk and their gradient with respect to its logits.

    It is a module so that it can be compiled: eagerly it reads the logits ten times, compiled twice.

    :param ignored: target id to ignore (padding)
    """

    def __init__(self, smoothing: float, ignored: int) -> None:
        super().__init__()
        self.smoothing, self.ignored = smoothing, ignored
        self.fused = False  # by a kernel of `macaron.nn.kernels`

    def forward(
        self, logits: Tensor, targets: Tensor, exact: torch.dtype, sloping: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The sums (2,) of smoothed loss and nll, and the gradient (N, V) of the smoothed loss without its target term.

        :param logits: (N, V), for targets (N,); may be overwritten
        :param exact: precision of the sums; the gradient has that of the logits
        :param sloping: whether the gradient is needed
        """
        share, kind = self.smoothing, logits.dtype
        real = targets != self.ignored
        goal = targets.unsqueeze(-1)
        logits = logits.to(exact)
        chosen, mean = logits.gather(-1, goal).squeeze(-1), logits.mean(-1)
        largest = logits.amax(-1, keepdim=True)
        weights = logits.sub_(largest).exp_()
        total = weights.sum(-1, keepdim=True)
        normaliser = (largest + total.log()).squeeze(-1)
        nll = (normaliser - chosen) * real
        loss = (1 - share) * nll + share * (normaliser - mean) * real
        sums = torch.stack([loss.sum(), nll.sum()])
        if not sloping:
            return sums, None
        # d loss / d logits = softmax - e / V - (1 - e) [target], written over the logits. `_SmoothedCrossEntropy` adds
        # the last term, one number per row.
        slope = weights.mul_(1 / total).sub_(share / logits.shape[-1]).mul_(real.unsqueeze(-1))
        return sums, slope.to(kind)


class PairDivergence(nn.Module):
    """How far the distributions p of a token and q of its copy are apart.

    :param weight: of the divergence in the loss
    :param both: R-Drop: the mean of KL(p || q) and KL(q || p), and both have a cross-entropy. Otherwise SimCut:
        KL(p || q), and only p has one
    """

    def __init__(self, weight: float, both: bool, ignored: int) -> None:
        super().__init__()
        self.weight, self.both, self.ignored = weight, both, ignored

    def forward(self, logits: Tensor, targets: Tensor, exact: torch.dtype) -> tuple[Tensor, Tensor]:
        """The sum of the divergences, and its weighted gradient (2 N, V); neither p nor q is taken for a constant.

        :param logits: (2 N, V), those of p and q in turn, as targets (2 N,)
        """
        real = (targets[::2] != self.ignored).unsqueeze(-1)
        log_p, log_q = logits.to(exact).view(-1, 2, logits.shape[-1]).log_softmax(-1).unbind(1)
        p, q, gap = log_p.exp(), log_q.exp(), log_p - log_q
        divergence = (p * gap).sum(-1, keepdim=True)
        p_slope, q_slope = p * (gap - divergence), q - p
        if self.both:
            back = -(q * gap).sum(-1, keepdim=True)
            p_slope, q_slope = (p_slope - q_slope) / 2, (q_slope - q * (gap + back)) / 2
            divergence = (divergence + back) / 2
        slopes = torch.stack([p_slope, q_slope], 1).mul_(self.weight * real[:, None])
        return (divergence * real).sum(), slopes.flatten(0, 1)


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, targets: Tensor, modules: Any, chunk: int) -> Tensor:
        """The sums (2,) of smoothed loss and nll for states (N, D), output embedding (V, D) and targets (N,).

        :param modules: a `ChunkLoss`, and a `PairDivergence` or None. With the latter there are three sums
        """
        losses, divergence = modules
        sloping = any(ctx.needs_input_grad)
        # Under autocast, products run in its precision; sums, softmax and weight gradients are in float32.
        if torch.is_autocast_enabled(states.device.type):
            kind = torch.get_autocast_dtype(states.device.type)
            rows, matrix = states.to(kind), weight.to(kind)
        else:
            rows, matrix = states, weight
        exact = torch.promote_types(rows.dtype, torch.float32)
        sums = torch.zeros(2 if divergence is None else 3, dtype=exact, device=states.device)
        d_states: Any = torch.empty_like(rows) if sloping else None
        # A frozen embedding needs no gradient, which would be half of the work.
        trained = ctx.needs_input_grad[1]
        d_weight: Any = torch.zeros(weight.shape, dtype=exact, device=weight.device) if trained else None
        with torch.autocast(states.device.type, enabled=False):
            for start in range(0, len(rows), chunk):
                part, goal = rows[start : start + chunk], targets[start : start + chunk]
                logits, apart = part @ matrix.T, None
                if divergence is not None:  # first, since the losses overwrite the logits
                    found, apart = divergence(logits, goal, exact)
                    sums[0] += divergence.weight * found
                    sums[2] += found
                if losses.fused:
                    slope = logits if sloping else None
                    sums[:2] += chunk_loss(logits, goal, losses.smoothing, losses.ignored, sloping)
                else:
                    found, slope = losses(logits, goal, exact, sloping)
                    sums[:2] += found
                    if slope is not None:
                        target = (goal != losses.ignored).to(slope.dtype) * (losses.smoothing - 1)
                        slope.scatter_add_(-1, goal.unsqueeze(-1), target.unsqueeze(-1))
                if slope is None:
                    continue
                slope = slope if apart is None else slope.add_(apart)
                torch.mm(slope, matrix, out=d_states[start : start + chunk])
                if trained:
                    d_weight += slope.T @ part
        ctx.save_for_backward(d_states, d_weight)
        ctx.kinds = states.dtype, weight.dtype
        if divergence is not None and divergence.both:
            sums[1] /= 2
        return sums

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Only the smoothed loss has a gradient; nll is for logging."""
        d_states, d_weight = ctx.saved_tensors
        scale = gradients[0][0]
        d_weight = None if d_weight is None else (d_weight * scale).to(ctx.kinds[1])
        return (d_states * scale).to(ctx.kinds[0]), d_weight, None, None, None


class SmoothedCrossEntropy(nn.Module):
    """The sums of smoothed loss and nll over real targets, from states and the output embedding.

    The smoothed loss is (1 - e) nll + e times the mean over the vocabulary of -log p, as in the authors' code.

    :param chunk: rows of logits held at a time; the default depends on the device
    """

    def __init__(self, smoothing: float, ignored: int, chunk: int | None = None) -> None:
        super().__init__()
        self.losses, self.chunk = ChunkLoss(smoothing, ignored), chunk

    def forward(
        self, states: Tensor, weight: Tensor, targets: Tensor, divergence: PairDivergence | None = None
    ) -> Tensor:
        """The two sums, (2,), for states (..., D), output embedding (V, D) and targets (...).

        :param divergence: states and targets are those of a batch and then those of its copy. The sums (3,) are the
            smoothed losses and the weighted divergence together, the nll of a copy, the divergence
        """
        flat, goals = states.reshape(-1, states.shape[-1]), targets.reshape(-1)
        chunk = self.chunk or CHUNK.get(states.device.type, CHUNK["cpu"])
        if divergence is not None:  # the two rows of a token side by side; several tensors of this size are held
            flat = flat.view(2, -1, flat.shape[-1]).transpose(0, 1).reshape(flat.shape)
            first, second = goals.view(2, -1)
            second = second if divergence.both else torch.full_like(second, self.losses.ignored)
            goals, chunk = torch.stack([first, second], 1).flatten(), 2 * max(chunk // 8, 1)
        return _SmoothedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            flat, weight, goals, (self.losses, divergence), chunk
        )
