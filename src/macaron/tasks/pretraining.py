"""Pre-training an encoder: masked words and next sentences."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.data.batching import section_blocks, section_count
from macaron.data.prepared import PreparedText, TextSplit
from macaron.data.pretraining_texts import Corpus
from macaron.errors import MacaronError, naming, require
from macaron.models import EncoderConfig, EncoderForPreTraining
from macaron.nn import Context
from macaron.nn.fused import embed
from macaron.nn.fused_functions import PackedRows
from macaron.nn.loss import SmoothedCrossEntropy
from macaron.recipe import Recipe, configuration
from macaron.tasks import pretraining_batches as batches
from macaron.tasks.pretraining_batches import UNKNOWN, Plan, PretrainingBatch, Shape
from macaron.text.vocabulary import PAD
from macaron.train.distributed import Processes
from macaron.train.settings import PretrainSettings
from macaron.train.task import MicroBatch, Task, same_text

AHEAD = 4  # micro-batches that are collated while the device is busy
ACCURACY_ROWS = 2048  # rows of logits in memory at a time when predictions are counted


class PretrainingLoss(nn.Module):
    """Model and losses as one module, for DDP and FSDP.

    :param chunk: number of words whose logits are in memory at a time
    """

    def __init__(self, model: EncoderForPreTraining, settings: PretrainSettings, chunk: int | None = None) -> None:
        super().__init__()
        self.model, self.mlm, self.nsp = model, settings.mlm, settings.nsp
        self.criterion = SmoothedCrossEntropy(0.0, PAD, chunk)
        self.fused = False  # see `macaron.nn.fused`

    def forward(self, batch: PretrainingBatch) -> Tensor:
        """The weighted sums of a batch's losses: both together, then each that is on."""
        return self.losses(*self.states(batch), batch)

    def states(self, batch: PretrainingBatch) -> tuple[Tensor, Tensor]:
        """The final states at the positions to predict, (M, D), and at the starts of the texts, (P, D)."""
        model = self.model.model
        if self.fused:
            rows = PackedRows(batch.text, offsets=batch.starts).cast([model.encoder])
            x = embed(model.embedding, batch.ids, batch.positions, batch.segments, rows)
            context = Context()
        else:
            x = model.embedding(batch.ids, batch.positions, batch.segments)
            context = Context(mask=packed_mask(batch.text), positions=batch.positions)
        x = model.encoder(x, context, norm=False)
        needed = x.reshape(-1, x.shape[-1]).index_select(0, torch.cat([batch.masked, batch.firsts]))
        # The final norm is position-wise: only the needed positions go through it.
        if model.encoder.norm is not None:
            needed = model.encoder.norm(needed)
        return needed[: len(batch.masked)], needed[len(batch.masked) :]

    def losses(self, words: Tensor, firsts: Tensor, batch: PretrainingBatch) -> Tensor:
        """From states to the weighted sums."""
        ready, table = self.model.model.embedding.output(self.model.head(words))
        mlm = self.criterion(ready, table, batch.targets)[0] * batch.weights[0]
        logits = self.model.next_sentence(firsts).squeeze(-1)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        wrong = F.binary_cross_entropy_with_logits(logits, batch.follows.clamp(min=0).to(logits), reduction="none")
        nsp = (wrong * (batch.follows >= 0)).sum() * batch.weights[1]
        return torch.stack([mlm + nsp, *([mlm] if self.mlm else []), *([nsp] if self.nsp else [])])

    def right(self, words: Tensor, firsts: Tensor, batch: PretrainingBatch) -> Tensor:
        """The words and pairs predicted correctly, then all words and pairs: (2, 2)."""
        hits = torch.zeros((), dtype=torch.long, device=words.device)
        ready, table = self.model.model.embedding.output(self.model.head(words))
        for rows, targets in zip(*(torch.split(each, ACCURACY_ROWS) for each in (ready, batch.targets)), strict=True):
            best = F.linear(rows, table).argmax(-1)
            hits += ((best == targets) & (targets != PAD)).sum()
        says, known = self.model.next_sentence(firsts).squeeze(-1) > 0, batch.follows >= 0
        pairs = ((says == (batch.follows > 0)) & known).sum()
        return torch.stack([torch.stack([hits, pairs]), torch.stack([(batch.targets != PAD).sum(), known.sum()])])


def packed_mask(text: Tensor, causal: bool = False) -> Tensor:
    """Which positions belong to one text, (B, 1, T, T); under autocast on a GPU as a mask to add to attention's logits.

    Otherwise every layer would convert the flags again.

    :param causal: and are not later ones
    """
    same = same_text(text, text)
    if causal:
        same = same.tril()
    kind = text.device.type
    if kind != "cuda" or not torch.is_autocast_enabled(kind):
        return same
    added = torch.zeros(same.shape, dtype=torch.get_autocast_dtype(kind), device=same.device)
    return added.masked_fill_(~same, float("-inf"))


class TextTask(Task):
    """Documents in: what pre-training and language models share."""

    data: PreparedText
    offsets = True

    def __init__(self, recipe: Recipe, settings: PretrainSettings) -> None:
        super().__init__()
        self.data = data = PreparedText.open(recipe.data)
        self.train, self.settings = recipe.train, settings
        settings.check(self.train)
        self.sentences = {split: data.sentences(split) for split in data.splits}
        self.corpora = {split: self._corpus(split) for split in ("train", "valid")}
        # A section needs two documents, for next sentences.
        most = max(1, self.corpora["train"].count // 2)
        self.sections = min(section_count(len(self.sentences["train"])), most)
        self.shape = Shape.of(self.train, settings, self.corpora["train"])
        self._collator = ThreadPoolExecutor(1, "collate")
        self._collated: dict[tuple[int, ...], Future[Any]] = {}

    def _corpus(self, split: TextSplit) -> Corpus:
        name = {"train": "training", "valid": "validation"}[split]
        if split not in self.sentences or not len(self.sentences[split]):
            raise MacaronError(f"{self.data.folder}: no {name} text in these data; prepare more documents")
        corpus = Corpus(self.sentences[split].offsets, self.data.documents(split))
        needs = f"{self.data.folder}: next-sentence prediction needs at least two {name} documents"
        remedy = "Set pretrain.nsp = false, or prepare at least four documents, separated by blank lines."
        require(corpus.count >= 2 or not self.settings.nsp, f"{needs}. {remedy}")
        return corpus

    @abstractmethod
    def _plan(self, corpus: Corpus, seed: tuple[int, ...], group: int) -> Plan:
        """All micro-batches of a corpus, see `batches.plan`."""

    @abstractmethod
    def _collate(self, split: TextSplit, made: Plan, index: int) -> Any:
        """A micro-batch on the CPU."""

    def cut(self, batch: Any, start: int, stop: int) -> Any:
        """Some rows of a batch, with the words and pairs in them; texts stay in the order of ``starts``."""
        begin, end = start * batch.ids.shape[1], stop * batch.ids.shape[1]
        made = {name: each[start:stop] for name, each in vars(batch).items() if each.dim() == 2}
        for where, what, unused in (("masked", "targets", PAD), ("firsts", "follows", UNKNOWN)):
            if (places := getattr(batch, where, None)) is not None:
                values = getattr(batch, what)
                outside = (places < begin) | (places >= end) | (values == unused)
                # Room for one and a quarter of the usual number: nearly always one shape.
                usual = 8 * math.ceil(1.25 * (stop - start) / len(batch.ids) * len(places) / 8)
                first = outside.byte().argsort(stable=True)[: max(usual, int((~outside).sum()))]
                made |= {where: ((places - begin) % (end - begin))[first]}
                made |= {what: values.masked_fill(outside, unused)[first]}
        return replace(batch, **made, starts=batch.starts.clamp(begin, end) - begin)

    def plan_section(self, number: int) -> Sequence[MicroBatch]:
        """Cut a section into texts and pack them; `Plan.tokens` are the targets of a micro-batch."""
        seed, group = (self.train.seed, number), self.train.accumulate
        corpus = self.corpora["train"]
        if self.sections > 1:
            blocks = section_blocks(corpus.count, (number - 1) % self.sections, self.sections, self.train.seed)
            chosen = np.concatenate([np.arange(*block) for block in blocks])
            corpus = Corpus(corpus.offsets, corpus.documents, chosen)
        made = self._plan(corpus, seed, group)
        tokens = made.tokens.tolist()
        return [MicroBatch(count, partial(self._collate_ahead, made, i)) for i, count in enumerate(tokens)]

    def _collate_ahead(self, made: Plan, index: int, device: torch.device) -> Any:
        """Collate a micro-batch; the next ones are collated in the background."""
        world = dist.get_world_size() if dist.is_initialized() else 1
        coming = range(index, min(index + AHEAD * world + 1, len(made.tokens)), world)
        self._collated = {
            (*made.seed, i): self._collated.get((*made.seed, i))
            or self._collator.submit(self._collate, "train", made, i)
            for i in coming
        }
        return batches.on_device(self._collated[*made.seed, index].result(), device)

    @cached_property
    def _validation(self) -> Plan:
        """Always the same texts and masks; all of them are one update, so that the losses are plain means."""
        return self._plan(self.corpora["valid"], (0, 0), 0)


class PretrainingTask(TextTask):
    """Documents in, an encoder with its pre-training heads out; the model is drawn with the recipe's seed."""

    model: EncoderForPreTraining
    module: PretrainingLoss

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe, recipe.pretrain)
        train, settings, data = self.train, self.settings, self.data
        config = encoder_config(recipe, len(data.tokenizer))
        longest = max(config.max_position_embeddings, settings.longest(train))
        # The authors' code has other segment ids.
        self.tokenizer = data.tokenizer.changed(segments=(config.first_segment, 1 - config.first_segment))
        fingerprint = self.tokenizer.fingerprint()
        config = replace(config, max_position_embeddings=longest, tokenizer_fingerprint=fingerprint)
        torch.manual_seed(train.seed)
        with naming(f"{recipe.origin.prefix(('model',))}[model]"):
            self.model = model = EncoderForPreTraining(config)
        self.stacks, self.layers = [model.model.encoder], list(model.model.encoder.layers)
        self.loss_names = ("loss", *(name for name in ("mlm", "nsp") if getattr(settings, name)))
        self.module = PretrainingLoss(model, settings, self.shape.chunk)
        self.compiled_parts = [*self.layers, model.model.embedding, model.head, self.module.criterion.losses]
        self.words = range(batches.FIRST_WORD, data.vocab_size)

    def _plan(self, corpus: Corpus, seed: tuple[int, ...], group: int) -> Plan:
        return batches.plan(corpus, self.shape, self.train, self.settings, seed, group)

    def _collate(self, split: TextSplit, made: Plan, index: int) -> PretrainingBatch:
        first = self.model.config.first_segment
        return batches.collate(self.sentences[split].ids, made, index, self.shape, self.settings, self.words, first)

    def validate(self, device: torch.device, processes: Processes, parts: int) -> Tensor:
        """Sums of the losses over this process's share, its tokens, and what `PretrainingLoss.right` counts."""
        made, module = self._validation, self.module
        sums = torch.zeros(len(self.loss_names) + 5, dtype=torch.float64, device=device)
        for index, counts in processes.turns(len(made.tokens)):
            batch = batches.on_device(self._collate("valid", made, index), device)
            for part, real in self.parts(batch, parts):
                words, firsts = module.states(part)
                sums[:-5] += module.losses(words, firsts, part) * (counts and real)
                sums[-4:] += module.right(words, firsts, part).flatten() * (counts and real)
            sums[-5] += int(made.tokens[index]) * counts
        return sums

    def score(self, device: torch.device, parts: int, counts: Sequence[float]) -> dict[str, float]:
        """The shares of words and of pairs that were predicted correctly."""
        measured = [(i, name) for i, name in enumerate(("mlm", "nsp")) if getattr(self.settings, name)]
        return {f"valid_{name}_accuracy": counts[i] / max(counts[i + 2], 1) for i, name in measured}


def encoder_config(recipe: Recipe, vocab_size: int) -> EncoderConfig:
    """The configuration of a recipe's encoder, for data with this vocabulary."""
    config: Any = configuration(recipe, vocab_size)
    if config.type_vocab_size != 2 or config.first_segment not in (0, 1):
        raise MacaronError("pre-training needs two segments: model.type_vocab_size = 2, model.first_segment 0 or 1")
    return config
