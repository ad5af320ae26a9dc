"""Training a translation model: batches of pairs, padded or packed into rows, the loss, the task."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from macaron.data import batching
from macaron.data.batching import Indices, Mixture, Rows
from macaron.data.bpe_dropout import Merges, SplitWords
from macaron.data.prepared import PairStore, PreparedData
from macaron.data.store import TokenList
from macaron.decode.cpu.model import CpuTranslationModel
from macaron.decode.settings import SearchSettings
from macaron.device import to_device
from macaron.errors import MacaronError, naming, require
from macaron.evaluate.evaluation import lower_cases, translate_all
from macaron.evaluate.scores import chrf, sacre_bleu, tokenised_bleu
from macaron.models import TranslationModel
from macaron.nn import Context
from macaron.nn.embedding import FIRST_POSITION
from macaron.nn.fused import embed
from macaron.nn.fused_functions import PackedRows
from macaron.nn.loss import PairDivergence, SmoothedCrossEntropy
from macaron.recipe import Recipe, configuration
from macaron.text.vocabulary import EOS, PAD
from macaron.train.distributed import Processes
from macaron.train.settings import CONSISTENCY
from macaron.train.step import tensors_of
from macaron.train.task import MicroBatch, Task, same_text

SCORE_TOKENS = 4096  # source tokens of a batch that is translated: its beams multiply them


@dataclass(frozen=True)
class TranslationBatch:
    """Source (B, S); target (B, T); the target shifted right, ``previous`` (B, T).

    Packed rows also have the position of each token in its sentence, and the number of the sentence in its row (0:
    padding). ``consistent``: the loss has a consistency term.
    """

    source: Tensor
    target: Tensor
    previous: Tensor
    source_positions: Tensor | None = None
    target_positions: Tensor | None = None
    source_sentence: Tensor | None = None
    target_sentence: Tensor | None = None
    consistent: bool = field(default=False, kw_only=True)


def short_pairs(pairs: PairStore, limit: int, start: int = 0, stop: int | None = None) -> Indices:
    """The indices of the pairs from ``start`` to ``stop`` with no side longer than ``limit``."""
    longest = np.maximum(pairs.source.lengths(start, stop), pairs.target.lengths(start, stop))
    return start + np.flatnonzero(longest <= limit)


def plan_padded(pairs: PairStore, kept: Indices, max_tokens: int, seed: int) -> list[MicroBatch]:
    """Padded micro-batches of pairs of similar length."""
    source, target = pairs.source.lengths_of(kept), pairs.target.lengths_of(kept)
    found = batching.bucket(source, target, max_tokens, seed)
    return [MicroBatch(int(target[each].sum()), partial(padded_batch, pairs, kept[each])) for each in found]


def plan_packed(pairs: PairStore, kept: Indices, width: int, per_batch: int, seed: int, epoch: int) -> list[MicroBatch]:
    """Micro-batches of ``per_batch`` packed rows each."""
    source, target = pairs.source.lengths_of(kept), pairs.target.lengths_of(kept)
    rows = batching.pack(source, target, width, seed, epoch)
    cuts = np.searchsorted(rows.row, np.arange(0, rows.count + per_batch, per_batch)).tolist()
    indices, row, targets = kept[rows.pairs], rows.row % per_batch, target[rows.pairs]
    planned = []
    for start, stop in pairwise(cuts):
        own = Rows(indices[start:stop], row[start:stop], per_batch)
        planned.append(MicroBatch(int(targets[start:stop].sum()), partial(packed_batch, pairs, own, width)))
    return planned


def padded_batch(pairs: PairStore, indices: Indices, device: torch.device) -> TranslationBatch:
    """A batch of these pairs, padded."""
    sides = (batching.padded(side, indices, PAD) for side in (pairs.source, pairs.target))
    source, target = (to_device(torch.from_numpy(side), device) for side in sides)
    return TranslationBatch(source, target, _previous(target))


def _previous(target: Tensor) -> Tensor:
    """Targets shifted right, with the end-of-sentence token as the start.

    In a packed row, the token before a sentence's first one is the end of the previous sentence: the same token.
    """
    shifted = torch.roll(target, 1, dims=1)
    shifted[:, 0] = EOS
    return shifted


def packed_batch(pairs: PairStore, rows: Rows, width: int, device: torch.device) -> TranslationBatch:
    """A batch of these rows; those beyond the last pair are empty."""
    numbers = np.stack([batching.packed(side, rows, width, PAD) for side in (pairs.source, pairs.target)], axis=1)
    numbers[1] += FIRST_POSITION
    given, wanted, *others = to_device(torch.from_numpy(numbers.astype(np.int32)), device).flatten(0, 1).unbind(0)
    wanted = wanted.long()
    return TranslationBatch(given.long(), wanted, _previous(wanted), *others)


class TranslationLoss(nn.Module):
    """Model and loss as one module, for DDP and FSDP.

    :param divergence: of a consistency loss. A batch is then computed together with a copy, which has another dropout
    :param cut: SimCut: the share of the copy's tokens whose vectors are zero. The end of the source and the start of
        the target are spared
    :param word_dropout: the share of tokens whose vectors are zero in training; the start of the target is spared
    """

    def __init__(
        self,
        model: TranslationModel,
        smoothing: float,
        divergence: PairDivergence | None = None,
        cut: float = 0.0,
        word_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.model, self.divergence, self.cut, self.word_dropout = model, divergence, cut, word_dropout
        self.criterion = SmoothedCrossEntropy(smoothing, PAD)
        self.fused = False  # see `macaron.nn.fused`

    def forward(self, batch: TranslationBatch) -> Tensor:
        """The sums of smoothed loss and nll over the targets of a batch, and of the divergence if there is one."""
        if self.divergence is None or not batch.consistent:
            sums = self.criterion(*self._states(batch))
            return sums if self.divergence is None else F.pad(sums, (0, 1))
        double: dict[str, Any] = {name: torch.cat([each, each]) for name, each in tensors_of(batch).items()}
        return self.criterion(*self._states(replace(batch, **double)), self.divergence)

    def _vectors(self, batch: TranslationBatch) -> tuple[Tensor | None, Tensor | None]:
        """The token vectors of source (B, S, D) and target (B, T, D) if some are zero; they are not scaled for it."""
        cutting = batch.consistent and self.cut > 0
        rate = self.cut if cutting else self.word_dropout
        if not rate or not self.training:
            return None, None
        found = []
        for ids, spared in ((batch.source, cutting), (batch.previous, True)):
            kept = torch.rand(ids.shape, device=ids.device) >= rate
            if spared:
                kept |= ids == EOS
            if cutting:
                kept[: len(ids) // 2] = True
            found.append(self.model.embedding.tokens(ids) * kept.unsqueeze(-1))
        return found[0], found[1]

    def _states(self, batch: TranslationBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The decoder's states, the table whose products with them are the logits, the targets."""
        model, embedding = self.model, self.model.embedding
        source, target = batch.source_sentence, batch.target_sentence
        given, before = self._vectors(batch)
        if source is None or target is None:
            real = batch.source != PAD
            needed = model.encoder.needs_positions or model.decoder.needs_positions
            if batch.source.device.type == "cpu" and not needed:
                wanted = batch.target != PAD
                states, indices = model.token_states(batch.source, batch.previous, wanted, (given, before))
                return states, embedding.tokens.weight, batch.target.flatten()[indices]
            memory = model.encode(batch.source, real, vectors=given)
            states = model.decode(batch.previous, memory, real, vectors=before)
        elif self.fused:
            rows = PackedRows(source).cast([model.encoder, model.decoder])
            x = embed(embedding, batch.source, batch.source_positions, None, rows, given)
            memory = model.encoder(x, Context())
            rows = rows.cross(target)
            y = embed(embedding, batch.previous, batch.target_positions, None, rows, before)
            states = model.decoder(y, Context(causal=True, memory=memory))
        else:
            x = embedding(batch.source, batch.source_positions, vectors=given)
            mask, positions = same_text(source, source), batch.source_positions
            memory = model.encoder(x, Context(mask=mask, positions=positions))
            size = target.shape[1]
            triangle = torch.ones(size, size, dtype=torch.bool, device=target.device).tril()
            y = embedding(batch.previous, batch.target_positions, vectors=before)
            # Padding sees everything: a query without a key has no softmax.
            mask = same_text(target, target) & triangle
            memory_mask = same_text(target, source) | (target == 0)[:, None, :, None]
            context = Context(mask=mask, memory=memory, memory_mask=memory_mask)
            context.positions = batch.target_positions
            states = model.decoder(y, context)
        return *embedding.output(states), batch.target


class TranslationTask(Task):
    """Pairs in, a translation model out; the model is drawn with the recipe's seed."""

    data: PreparedData
    model: TranslationModel
    module: TranslationLoss
    loss_names: tuple[str, ...] = ("loss", "nll")
    valid_names = ("loss", "nll")

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.data = data = PreparedData.open(recipe.data)
        self.train, self.decode = train, decode = recipe.train, recipe.decode
        self.tokenizer = data.tokenizer
        fingerprint = self.tokenizer.fingerprint()
        config: Any = configuration(recipe, data.vocab_size)
        evaluation = {"lower": decode.lower, "compound_split": decode.compound_split}
        config = replace(config, tokenizer_fingerprint=fingerprint, evaluation=evaluation)
        torch.manual_seed(train.seed)
        with naming(f"{recipe.origin.prefix(('model',))}[model]"):
            self.model = TranslationModel(config)
        search = self.model.generation_config
        search.num_beams, search.length_penalty = decode.beam, decode.length_penalty
        search.max_length = decode.max_length + 2  # transformers counts the start and the end of a translation too
        self.stacks = [self.model.encoder, self.model.decoder]
        self.layers = [*self.model.encoder.layers, *self.model.decoder.layers]
        divergence, twice = None, train.consistency == "r-drop"
        if train.consistency != "none":
            self.loss_names = (*self.loss_names, "divergence")
            divergence = PairDivergence(train.consistency_weight or CONSISTENCY[train.consistency], twice, PAD)
        if twice and not (train.word_dropout or any(getattr(part, "dropout", 0) for part in self.model.modules())):
            raise MacaronError(
                "train.consistency = 'r-drop' compares two copies with different dropout, and this model has none: set "
                "model.dropout, or take 'simcut'"
            )
        losses = divergence, 0.0 if twice else train.cut, train.word_dropout
        self.module = TranslationLoss(self.model, train.label_smoothing, *losses)
        self.compiled_parts = [*self.layers, self.model.embedding, self.module.criterion.losses]
        self.packing = train.packs(train.wants_gpu(torch.cuda.is_available()))
        self.rows_per_batch = max(1, train.batch_tokens // train.row_tokens)
        self.train_pairs = data.pairs("train")
        if "valid" not in data.splits or not len(data.pairs("valid")):
            raise MacaronError(f"{data.folder}: no validation data; prepare it with --valid")
        self.valid_pairs = data.pairs("valid")
        if train.best_metric == "chrf" and data.text_state("valid") != "raw":
            raise MacaronError(
                f"train.best_metric = 'chrf' needs plain text, but the validation text of {data.folder} is Moses "
                "tokens: take 'bleu' or 'loss'"
            )
        self.limit_name = "row_tokens" if self.packing and train.row_tokens < train.max_length else "max_length"
        self.limit: int = getattr(train, self.limit_name)
        size = len(self.train_pairs)
        if not size:
            raise MacaronError(f"{data.folder}: the training data is empty")
        self.sections = batching.section_count(size * (4 if train.bpe_dropout else 1))  # splitting words takes memory
        #: Pairs that are short enough.
        self.kept = sum(len(self._section(section)) for section in range(self.sections))
        problem = f"all {size:,} training pairs are longer than train.{self.limit_name} = {self.limit} tokens"
        require(self.kept > 0, f"{data.folder}: {problem}, and such pairs are left out: raise it")
        self.corpora = batching.reweighted(data.corpora("train"), recipe.weights, data.folder)
        self.mixture = Mixture(self._section(0), self.corpora, train.seed)
        if train.directions == "both" and any(corpus.tag for corpus in self.corpora):
            raise MacaronError("train.directions = 'both' does not fit tags, which stand before sources: leave it out")
        #: Every epoch shows the same pairs.
        self.constant = self.sections == 1 and self.mixture.constant
        self.merges = Merges(self.tokenizer) if train.bpe_dropout else None
        self._words: SplitWords | None = None

    def _section(self, section: int) -> Indices:
        blocks = batching.section_blocks(len(self.train_pairs), section, self.sections, self.train.seed)
        return np.concatenate([short_pairs(self.train_pairs, self.limit, *block) for block in blocks])

    def identity(self) -> dict[str, Any]:
        """The tokens, whether they are packed, and the weights of corpora if they differ from 1."""
        weights = {} if set(self.mixture.weights) == {1.0} else {"weights": self.mixture.weights}
        return {**super().identity(), "batching": "pack" if self.packing else "bucket", **weights}

    @cached_property
    def _buckets(self) -> list[MicroBatch]:
        return plan_padded(*self._shown(1), self.train.batch_tokens, self.train.seed)

    def _shown(self, number: int) -> tuple[PairStore, Indices]:
        """The pairs of a section: stored ones, or those of both directions, or with words that are split anew."""
        epoch, section = divmod(number - 1, self.sections)
        mixture = Mixture(self._section(section), self.corpora, self.train.seed) if section else self.mixture
        pairs, seen, both = self.train_pairs, mixture.epoch(epoch + 1), self.train.directions == "both"
        if self.merges is None and not both:
            return pairs, seen
        source, target = (TokenList(each.take(seen), each.lengths_of(seen)) for each in (pairs.source, pairs.target))
        pairs = PairStore(source + target, target + source) if both else PairStore(source, target)
        if self.merges is not None:
            if self._words is None or not self.constant:
                self._words = SplitWords(self.merges, pairs)
            pairs = self._words.draw(self.train.bpe_dropout, [self.train.seed, number])
        seen = short_pairs(pairs, self.limit)
        problem = f"train.bpe_dropout makes all pairs of epoch {epoch + 1} longer than train.{self.limit_name}"
        require(len(seen) > 0, f"{self.data.folder}: {problem} = {self.limit}: raise this limit")
        return pairs, seen

    def plan_section(self, number: int) -> Sequence[MicroBatch]:
        """Pack the pairs of a section, or shuffle its buckets, which are new if each epoch has pairs of its own."""
        seed = self.train.seed
        if self.constant and self.merges is None and not self.packing:
            buckets = self._buckets
        else:
            shown = self._shown(number)
            if self.packing:
                return plan_packed(*shown, self.train.row_tokens, self.rows_per_batch, seed, number)
            buckets = plan_padded(*shown, self.train.batch_tokens, seed)
        return [buckets[i] for i in batching.epoch_order(len(buckets), seed, number)]

    def at(self, batch: TranslationBatch, share: float) -> TranslationBatch:
        """With a consistency loss if it has begun."""
        train = self.train
        return replace(batch, consistent=train.consistency != "none" and share >= train.consistency_from)

    def validate(self, device: torch.device, processes: Processes, parts: int) -> Tensor:
        """Sums of the losses over this process's share, and its targets."""
        pairs, width = self.valid_pairs, self.train.row_tokens
        fitting = short_pairs(pairs, width) if self.packing else np.arange(0)
        rest = np.setdiff1d(np.arange(len(pairs)), fitting)
        planned = plan_packed(pairs, fitting, width, self.rows_per_batch, seed=0, epoch=0)
        planned += plan_padded(pairs, rest, self.train.batch_tokens, seed=0)
        sums = torch.zeros(3, dtype=torch.float64, device=device)
        for i, counts in processes.turns(len(planned)):
            batch = planned[i].collate(device)
            # Pairs longer than a row come in padded batches, which are not worth compiling for.
            eager = self.packing and batch.source_sentence is None
            with torch.compiler.set_stance("force_eager" if eager else "default"):
                for part, real in self.parts(batch, parts):
                    sums[:-1] += self.module(part)[:2] * (counts and real)
            sums[-1] += planned[i].targets * counts
        return sums

    def score(self, device: torch.device, parts: int, counts: Sequence[float]) -> dict[str, Any]:
        """Scores of the first validation sentences: sacreBLEU and chrF of plain text, tokenised BLEU of tokens.

        With the number of sentences and the definition. Lower-cased tokens are compared with lower-cased references.
        """
        count = min(self.train.scored_sentences, len(self.valid_pairs))
        if not count:
            return {}
        state = self.data.text_state("valid")
        sources = [self.valid_pairs.source[i].tolist() for i in range(count)]
        search = SearchSettings(self.decode.beam, self.decode.length_penalty, self.decode.max_length)
        batch_tokens = min(self.train.batch_tokens, SCORE_TOKENS)
        self.present = batch_tokens, max(map(len, sources))
        sharded = any(isinstance(parameter, DTensor) for parameter in self.model.parameters())
        model = CpuTranslationModel(self.model) if device.type == "cpu" and not sharded else self.model
        with torch.compiler.set_stance("force_eager"):
            lines = translate_all(model, self.data.tokenizer, sources, search, max(1, batch_tokens // parts), state)
        references = self.data.text("valid", self.data.target_lang)[:count]
        found: dict[str, Any] = {}
        lower = self.decode.lower or lower_cases(self.data.tokenizer.text_pipeline)
        if state == "raw":
            name, bleu = f"valid_sacrebleu{'_lc' if lower else ''}", sacre_bleu(lines, references, lower=lower)
            characters = chrf(lines, references)
            found |= {"valid_chrf": characters.score, "chrf_definition": characters.definition}
        else:
            split, tokens = self.decode.compound_split, "moses tokens as given"
            name = "valid_tokenised_bleu"
            bleu = tokenised_bleu(lines, references, lower=lower, compound_split=split, tokens=tokens)
        return {name: bleu.score, **found, "bleu_sentences": count, "bleu_definition": bleu.definition}
