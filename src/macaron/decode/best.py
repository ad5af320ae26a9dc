"""The best continuations of all beams: a search among some fifty thousand numbers for each sentence and step."""

import torch
from torch import Tensor

#: On a CPU, ``topk`` looks at every number with its place, which takes ten times longer than finding the largest.
_BLOCK = 128
#: For fewer numbers than this (few sentences) blocks do not pay: finding the best of each beam takes fewer calls.
_MANY = 1 << 18


def best_continuations(totals: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest of ``totals + scores`` in each sentence, in falling order: their sums, and beam * V + token.

    :param totals: (B, N), of the hypotheses so far
    :param scores: (B, N, V), of the tokens that may continue them; may be changed
    :param count: at most N V of them
    :returns: (B, count) each
    """
    beams, vocabulary = scores.shape[1:]
    if scores.device.type != "cpu" or vocabulary < count * _BLOCK:  # or so few tokens that nothing is gained
        return scores.add_(totals[..., None]).flatten(1).topk(count, dim=1)
    if scores.numel() < _MANY:
        best, tokens = scores.topk(count, dim=2)
        sums, places = best.add_(totals[..., None]).flatten(1).topk(count, dim=1)
        return sums, tokens.flatten(1).gather(1, places) + places // count * vocabulary
    # The largest numbers are in the blocks with the largest maxima, or in what is left over behind the last block.
    blocks, rest = divmod(vocabulary, _BLOCK)
    maxima = scores.unfold(2, _BLOCK, _BLOCK).amax(dim=3).add_(totals[..., None])
    chosen = maxima.flatten(1).topk(count, dim=1, sorted=False).indices
    beam, block = chosen // blocks, chosen % blocks
    index = ((beam * vocabulary + block * _BLOCK)[..., None] + torch.arange(_BLOCK)).flatten(1)
    sums = scores.flatten(1).gather(1, index).view(*chosen.shape, -1).add_(totals.gather(1, beam)[..., None]).flatten(1)
    if rest:
        last = torch.arange(vocabulary - rest, vocabulary) + torch.arange(beams)[:, None] * vocabulary
        index = torch.cat([index, last.flatten().expand(len(index), -1)], dim=1)
        sums = torch.cat([sums, (scores[..., -rest:] + totals[..., None]).flatten(1)], dim=1)
    sums, places = sums.topk(count, dim=1)
    return sums, index.gather(1, places)
