"""Micro-batches for pre-training: planned for an epoch, collated one by one, all of one shape.

A micro-batch is rows of one width, each with several texts that do not attend to each other. The positions to predict
are a list of fixed size: only they go through the output layer and the loss. Unused entries of the list have no target.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from macaron.data import pretraining_texts
from macaron.data.batching import Indices, Rows, counting, pack_by_length
from macaron.data.pretraining_texts import Corpus, Spans
from macaron.device import to_device
from macaron.nn.embedding import FIRST_POSITION
from macaron.text.vocabulary import CLS, EOS, MASK, PAD, SPECIALS
from macaron.train.settings import PretrainSettings, TrainSettings

FIRST_WORD = len(SPECIALS["encoder"])
SHORTEST = 5  # tokens of the shortest pair: <cls> a </s> b </s>
UNKNOWN = -1  # the label of an unused entry
LOSS_ROWS = 8192  # rows of logits in memory at a time


@dataclass(frozen=True)
class PretrainingBatch:
    """Rows of packed texts, (R, W): ids, positions in the text, the text's number in its row (0: padding), segments.

    ``masked`` (M,) are the flat indices to predict, and ``targets`` (M,) their words (padding: no target). ``firsts``
    (P,) are the flat indices of ``<cls>``, and ``follows`` (P,) says whether the second sentence really comes next (1,
    0; -1: unused). ``weights`` (2,) are the weights of a word and of a pair in the losses. ``starts`` (N+1,) are the
    cumulative lengths of texts and padding, for a variable-length kernel; unused entries repeat the last.
    """

    ids: Tensor
    positions: Tensor
    text: Tensor
    segments: Tensor
    masked: Tensor
    targets: Tensor
    firsts: Tensor
    follows: Tensor
    weights: Tensor
    starts: Tensor


@dataclass(frozen=True)
class Shape:
    """The one shape of all micro-batches."""

    rows: int
    width: int
    deep: int  # most texts in a row
    texts: int  # usually enough for all texts and paddings: kernels spend time on those that are not there
    masked: int  # words to predict
    pairs: int
    chunk: int  # words whose logits are in memory at a time

    @classmethod
    def of(cls, train: TrainSettings, pretrain: PretrainSettings, corpus: Corpus) -> "Shape":
        """The shape for texts of this corpus."""
        width = train.row_tokens
        rows = max(1, train.batch_tokens // width)
        longest = pretrain.longest(train)
        paired = pretrain.nsp and pretrain.pairs == "sentences"
        texts = (len(corpus.offsets) - 1) / 2 if paired else corpus.count
        usual = min(longest, float(corpus.offsets[-1]) / max(texts, 1) + 3)
        # Three times the number of texts of the usual length that fit: a row hardly ever has more.
        shortest = SHORTEST if pretrain.nsp else SHORTEST - 2
        deep = max(1, min(width // shortest, max(4, math.ceil(3 * width / usual))))
        most = rows * deep
        texts = min(rows * (deep + 1), int(rows * (1.25 * width / usual + 0.25) + 4 * math.sqrt(rows)))
        # The masked words are the ratio of a text's tokens, rounded up by at most a fraction of a word. A micro-batch
        # full of tiny texts would have more: some of them get fewer then (`_within`).
        each = -(-width // longest) + 1
        masked = rows * (pretrain.ratio * width + 0.5 * each) + (most if pretrain.cls_target else 0)
        chunks = max(1, -(-int(masked) // LOSS_ROWS))
        chunk = -(-max(8, int(masked)) // (8 * chunks)) * 8  # chunks of one size: one graph for the compiler
        # Without next-sentence prediction a few unused entries remain: every weight needs a gradient, even if zero.
        return cls(rows, width, deep, texts, chunks * chunk, most if pretrain.nsp else 8, chunk)

    @property
    def size(self) -> int:
        """Positions in a micro-batch."""
        return self.rows * self.width


@dataclass(frozen=True)
class Plan:
    """All micro-batches of an epoch.

    ``counts`` are the words to predict of each text (in the order of ``rows``), ``tokens`` the real tokens of each
    micro-batch, ``weights`` (batches, 2) the weights of a word and of a pair in its losses.
    """

    seed: tuple[int, ...]
    spans: Spans
    rows: Rows
    counts: Indices
    tokens: Indices
    weights: NDArray[np.float64]


def plan(
    corpus: Corpus, shape: Shape, train: TrainSettings, settings: PretrainSettings, seed: tuple[int, ...], group: int
) -> Plan:
    """Cut a corpus into texts and pack them.

    The loss of an update is the mean over its words plus the mean over its pairs, in whichever micro-batches they are.
    The loop divides the sum of an update's losses by its number of tokens; so a word's loss is weighted by tokens /
    words, a pair's by tokens / pairs.

    :param seed: of all random choices: the same seed gives the same plan
    :param group: micro-batches in an update (0: all)
    """
    random = np.random.default_rng(seed)
    longest = settings.longest(train)
    if not settings.nsp:
        spans = pretraining_texts.single_spans(corpus, longest, random)
    elif settings.pairs == "sentences":
        spans = pretraining_texts.sentence_pairs(corpus, longest, settings.next_share, random)
    else:
        spans = pretraining_texts.span_pairs(corpus, longest, settings.short_share, settings.next_share, random)
    rows = pack_by_length(spans.lengths, shape.width, shape.deep, random)
    of_batch = rows.row // shape.rows
    batches = -(-rows.count // shape.rows)
    extra = int(settings.cls_target)
    counts = _within(
        pretraining_texts.masked_counts(spans.words[rows.pairs], settings.ratio), of_batch, shape.masked, extra
    )

    def total(values: Indices) -> Indices:
        return np.bincount(of_batch, weights=values, minlength=batches).astype(np.int64)

    tokens = total(spans.lengths[rows.pairs])
    words = total(counts + extra) if settings.mlm else np.zeros(batches, np.int64)
    pairs = total((spans.follows >= 0)[rows.pairs].astype(np.int64))
    update = np.arange(batches) // group if group else np.zeros(batches, np.int64)
    sums = [np.bincount(update, weights=each)[update] for each in (tokens, words, pairs)]
    weights = np.stack([np.where(each > 0, sums[0] / np.maximum(each, 1), 0.0) for each in sums[1:]], axis=1)
    return Plan(seed, spans, rows, counts, tokens, weights)


def _within(counts: Indices, of_batch: Indices, most: int, extra: int) -> Indices:
    """At most ``most`` words in a micro-batch: if it has more, its last texts get fewer."""
    sums = np.cumsum(counts + extra) - counts - extra
    opens = np.flatnonzero(np.diff(of_batch, prepend=-1))
    before = sums - np.repeat(sums[opens], np.diff(np.append(opens, len(counts))))
    return np.clip(most - extra - before, 0, counts)


def collate(
    ids: NDArray[np.integer], made: Plan, index: int, shape: Shape, settings: PretrainSettings, words: range, first: int
) -> PretrainingBatch:
    """A micro-batch on the CPU.

    :param ids: the flat ids of the store
    :param words: the ids of words, from which random replacements are drawn
    :param first: the segment id of the first sentence; the second has the other one
    """
    random = np.random.default_rng((*made.seed, 1 + index))
    begin, end, row, spans = texts_of(made, index, shape)
    a, b, paired = spans.a_length, spans.b_length, spans.follows >= 0
    start, grid, starts = arrange(row, spans.lengths, shape)
    second = start + a + 2
    grid[3] = first
    of_second = b + paired
    grid[3, np.repeat(second, of_second) + counting(of_second)] = 1 - first
    grid[0, start] = CLS
    grid[0, start + a + 1] = EOS
    grid[0, (second + b)[paired]] = EOS

    # The words of a text are those of its two spans.
    parts = np.stack([a, b], axis=1).reshape(-1)
    step = counting(parts)
    source = np.repeat(np.stack([spans.a_start, spans.b_start], axis=1).reshape(-1), parts) + step
    position = np.repeat(np.stack([start + 1, second], axis=1).reshape(-1), parts) + step
    real = ids[source].astype(np.int64)
    picked = pretraining_texts.choose(a + b, made.counts[begin:end], real >= FIRST_WORD, random)
    grid[0, position] = pretraining_texts.corrupt(
        real, picked, MASK, words, settings.mask_share, settings.random_share, random
    )
    masked, targets = position[picked], real[picked]
    if settings.cls_target:
        masked = np.concatenate([masked, start])
        targets = np.concatenate([targets, np.full(len(start), CLS)])

    # Unused entries are all different: accumulating their gradients, all zero, at one position would be slow.
    lists = [np.arange(shape.masked) % shape.size, np.full(shape.masked, PAD)]
    lists += [np.arange(shape.pairs) % shape.size, np.full(shape.pairs, UNKNOWN)]
    known = (masked, targets, start, spans.follows) if settings.nsp else (masked, targets)
    for values, found in zip(lists, known, strict=False):
        values[: len(found)] = found
    tokens, positions, text, segments = torch.from_numpy(grid).view(4, shape.rows, shape.width)
    others = (*lists, made.weights[index].astype(np.float32), starts)
    return PretrainingBatch(tokens.long(), positions, text, segments.long(), *map(torch.from_numpy, others))


def texts_of(made: Plan, index: int, shape: Shape) -> tuple[int, int, Indices, Spans]:
    """The texts of a micro-batch: their places in the plan, from and to; their rows; their spans."""
    begin, end = np.searchsorted(made.rows.row, [index * shape.rows, (index + 1) * shape.rows])
    chosen, row = made.rows.pairs[begin:end], made.rows.row[begin:end] - index * shape.rows
    return int(begin), int(end), row, Spans(*(getattr(made.spans, each)[chosen] for each in Spans.__dataclass_fields__))


def arrange(row: Indices, lengths: Indices, shape: Shape) -> tuple[Indices, NDArray[np.int32], NDArray[np.int32]]:
    """Where the texts of a micro-batch start; a grid (4, size) of ids, still padding, positions, numbers of texts, and
    zeros; and the starts of texts and paddings for `PretrainingBatch`.
    """
    # The start of each text: the tokens before it, less the tokens before its row.
    before = np.cumsum(lengths) - lengths
    opens = np.flatnonzero(np.diff(row, prepend=-1))
    members = np.diff(np.append(opens, len(row)))
    start = row * shape.width + before - np.repeat(before[opens], members)
    number = np.arange(len(row)) - np.repeat(opens, members) + 1
    grid = np.zeros((4, shape.size), np.int32)
    grid[0], grid[1] = PAD, FIRST_POSITION
    everywhere, inside = np.repeat(start, lengths), counting(lengths)
    grid[1, everywhere + inside] = inside + FIRST_POSITION
    grid[2, everywhere + inside] = np.repeat(number, lengths)
    # The padding of a row is a sequence of its own: every position belongs to one.
    filled = np.bincount(row, weights=lengths, minlength=shape.rows).astype(np.int64)
    padding = (np.arange(shape.rows) * shape.width + filled)[filled < shape.width]
    opened = np.sort(np.concatenate([start, padding]))
    room = shape.texts if len(opened) <= shape.texts else shape.rows * (shape.deep + 1)
    starts = np.full(room + 1, shape.size, np.int32)
    starts[: len(opened)] = opened
    return start, grid, starts


def on_device(batch: Any, device: torch.device) -> Any:
    """A copy of a batch on a device."""
    return replace(batch, **{name: to_device(tensor, device) for name, tensor in vars(batch).items()})
