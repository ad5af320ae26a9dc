"""Training a language model: every token of every document, from those before it in the document."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from macaron.data.batching import Indices, counting, pack_by_length
from macaron.data.prepared import TextSplit
from macaron.data.pretraining_texts import Corpus, single_spans
from macaron.errors import naming
from macaron.models import LanguageConfig, LanguageModel
from macaron.nn import Context
from macaron.nn.fused import embed
from macaron.nn.fused_functions import PackedRows
from macaron.nn.loss import SmoothedCrossEntropy
from macaron.recipe import Recipe, configuration
from macaron.tasks.pretraining import TextTask, packed_mask
from macaron.tasks.pretraining_batches import Plan, Shape, arrange, on_device, texts_of
from macaron.text.vocabulary import EOS, PAD
from macaron.train.distributed import Processes
from macaron.train.settings import PretrainSettings

#: What an epoch of a language model has in common with one of an encoder: single spans, cut from documents.
SPANS = PretrainSettings(nsp=False)


@dataclass(frozen=True)
class LanguageBatch:
    """Rows of packed texts, (R, W): ids, the tokens that follow them (padding: no target), positions in the text, the
    text's number in its row (0: padding). ``starts`` as in `PretrainingBatch`.
    """

    ids: Tensor
    targets: Tensor
    positions: Tensor
    text: Tensor
    starts: Tensor


def plan(corpus: Corpus, shape: Shape, longest: int, seed: tuple[int, ...]) -> Plan:
    """Cut a corpus into texts and pack them: each token is a target once.

    A text has one token more than its span: before it, ``</s>`` at the start of a document, otherwise the last token of
    the span before. The end of a document is a target, too.
    """
    random = np.random.default_rng(seed)
    spans = single_spans(corpus, longest, random, special=1)
    rows = pack_by_length(spans.a_length + 1, shape.width, shape.deep, random)
    counts = spans.a_length[rows.pairs] + _at_edge(corpus, (spans.a_start + spans.a_length)[rows.pairs])
    batches = -(-rows.count // shape.rows)
    tokens = np.bincount(rows.row // shape.rows, weights=counts, minlength=batches).astype(np.int64)
    return Plan(seed, spans, rows, counts, tokens, np.ones((batches, 2)))


def _at_edge(corpus: Corpus, places: Indices) -> NDArray[np.bool_]:
    """Which places in the store are the start of a document, or the end of the one before."""
    edges = corpus.offsets[corpus.documents]
    return np.asarray(edges[np.searchsorted(edges, places)] == places)


def collate(ids: NDArray[np.integer], corpus: Corpus, made: Plan, index: int, shape: Shape) -> LanguageBatch:
    """A micro-batch on the CPU; ``ids`` are the flat ids of the store."""
    begin, end, row, spans = texts_of(made, index, shape)
    length, first = spans.a_length, spans.a_start
    start, grid, starts = arrange(row, length + 1, shape)
    step = counting(length)
    words, place = ids[np.repeat(first, length) + step], np.repeat(start, length) + step
    grid[3] = PAD
    grid[0, start] = np.where(_at_edge(corpus, first), EOS, ids[np.maximum(first - 1, 0)])
    grid[0, place + 1], grid[3, place] = words, words
    grid[3, (start + length)[made.counts[begin:end] > length]] = EOS
    tokens, positions, text, targets = torch.from_numpy(grid).view(4, shape.rows, shape.width)
    return LanguageBatch(tokens.long(), targets.long(), positions, text, torch.from_numpy(starts))


class LanguageLoss(nn.Module):
    """Model and loss as one module, for DDP and FSDP."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model
        self.criterion = SmoothedCrossEntropy(0.0, PAD)
        self.fused = False  # see `macaron.nn.fused`

    def forward(self, batch: LanguageBatch) -> Tensor:
        """The sum (1,) of the negative log-likelihoods of a batch's targets."""
        model = self.model
        if self.fused:
            rows = PackedRows(batch.text, offsets=batch.starts).cast([model.decoder])
            x, context = embed(model.embedding, batch.ids, batch.positions, None, rows), Context(causal=True)
        else:
            x, mask = model.embedding(batch.ids, batch.positions), packed_mask(batch.text, causal=True)
            context = Context(mask=mask, positions=batch.positions)
        return self.criterion(*model.embedding.output(model.decoder(x, context)), batch.targets)[:1]


class LanguageModelTask(TextTask):
    """Documents in, a language model out; the model is drawn with the recipe's seed."""

    model: LanguageModel
    module: LanguageLoss
    loss_names = ("loss",)
    offsets = True

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe, SPANS)
        train = self.train
        config = configuration(recipe, self.data.vocab_size)
        assert isinstance(config, LanguageConfig)
        self.tokenizer = self.data.tokenizer.changed(kind="language")
        longest, fingerprint = max(config.max_position_embeddings, train.row_tokens), self.tokenizer.fingerprint()
        config = replace(config, max_position_embeddings=longest, tokenizer_fingerprint=fingerprint)
        torch.manual_seed(train.seed)
        with naming(f"{recipe.origin.prefix(('model',))}[model]"):
            self.model = LanguageModel(config)
        self.stacks, self.layers = [self.model.decoder], list(self.model.decoder.layers)
        self.module = LanguageLoss(self.model)
        self.compiled_parts = [*self.layers, self.model.embedding, self.module.criterion.losses]

    def _plan(self, corpus: Corpus, seed: tuple[int, ...], group: int) -> Plan:
        return plan(corpus, self.shape, self.train.row_tokens, seed)

    def _collate(self, split: TextSplit, made: Plan, index: int) -> LanguageBatch:
        return collate(self.sentences[split].ids, self.corpora[split], made, index, self.shape)

    def validate(self, device: torch.device, processes: Processes, parts: int) -> Tensor:
        """The sum of the loss over this process's share, and its targets; both again, for `score`."""
        made, sums = self._validation, torch.zeros(2, dtype=torch.float64, device=device)
        for index, counts in processes.turns(len(made.tokens)):
            batch = on_device(self._collate("valid", made, index), device)
            for part, real in self.parts(batch, parts):
                sums[:1] += self.module(part) * (counts and real)
            sums[1] += int(made.tokens[index]) * counts
        return sums.repeat(2)

    def score(self, device: torch.device, parts: int, counts: Sequence[float]) -> dict[str, float]:
        """The perplexity per token."""
        return {"valid_perplexity": math.exp(min(counts[0] / max(counts[1], 1), 700))}
