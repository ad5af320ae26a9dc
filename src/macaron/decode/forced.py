"""Given translations: one pass over source and translation, and the alignment of their words by the cross-attention."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from macaron.decode.place_tags import Alignment, Link, Span, word_spans
from macaron.decode.search import batches
from macaron.models.translation import TranslationModel
from macaron.text.tokenizer import MacaronTokenizer

Weights = list[tuple[str, Tensor]]


def forced(
    model: TranslationModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    weights: Weights | None = None,
) -> tuple[Tensor, Tensor]:
    """The target tokens (B, T), padded on the right, and the states (B, T, D) that predict them.

    :param sources: token ids, each with its end, as are the targets
    :param weights: if a list, receives the weights of every attention of the decoder
    """
    source, target = (
        pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=model.pad).to(model.device)
        for rows in (sources, targets)
    )
    start = model.config.decoder_start_token_id
    first = torch.full_like(target[:, :1], targets[0][-1] if start is None else start)
    real = source != model.pad
    shifted = torch.cat([first, target[:, :-1]], dim=1)
    return target, model.decode(shifted, model.encode(source, real), real, weights=weights)


@torch.inference_mode()
def align(
    model: TranslationModel,
    tokenizer: MacaronTokenizer,
    front: Sequence[int],
    sources: Sequence[str],
    translations: Sequence[str],
    batch_tokens: int,
) -> list[Alignment | None]:
    """The alignments of translations; None for a pair that is longer than the model allows.

    Attention is averaged over all heads and layers, which is better than any one of them, and summed over the tokens of
    a word. A word of the translation is linked to the word of the source to which it gives the largest share of what
    that word gets from all: names and rare words get more attention than others from everywhere.

    :param front: ids before each source, a tag's
    """
    sides = [tokenizer.token_spans(sources), tokenizer.token_spans(translations, "target")]
    ids = [([*front, *a[0]], b[0]) for a, b in zip(*sides, strict=True)]
    found: list[Alignment | None] = [None] * len(ids)
    lengths = [max(map(len, pair)) for pair in ids]
    short = [i for i, length in enumerate(lengths) if length <= model.config.longest_input]
    for batch in batches([lengths[i] for i in short], batch_tokens):
        rows = [short[i] for i in batch]
        weights: Weights = []
        forced(model, [ids[i][0] for i in rows], [ids[i][1] for i in rows], weights)
        mean = torch.stack([each.float().mean(dim=1) for name, each in weights if name == "H"]).mean(dim=0).cpu()
        for row, i in enumerate(rows):
            words = word_spans(sources[i]), word_spans(translations[i])
            source, target = (_tokens_of(*each) for each in zip(words, (sides[0][i][1], sides[1][i][1]), strict=True))
            attention = mean[row, : target.shape[1], len(front) : len(front) + source.shape[1]]
            shares = target @ attention @ source.T
            if shares.numel():
                best = (shares / shares.sum(dim=0).clamp(min=1e-9)).argmax(dim=1).tolist()
                found[i] = Alignment(tuple(Link(words[0][k], span) for k, span in zip(best, words[1], strict=True)))
    return found


def _tokens_of(words: Sequence[Span], tokens: Sequence[Span]) -> Tensor:
    """Which tokens a word has: 1 where characters of both overlap, (words, tokens)."""
    has = torch.zeros(len(words), len(tokens))
    starts, ends = [start for start, _ in words], [end for _, end in words]
    for index, (start, end) in enumerate(tokens):
        has[bisect_right(ends, start) : bisect_left(starts, end), index] = 1.0
    return has
