"""Training a translation model."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from macaron.data import batching
from macaron.data.assemble import packed, padded
from macaron.data.batching import Indices, Lengths
from macaron.data.prepared import PairStore, PreparedData
from macaron.decode.settings import SearchSettings
from macaron.errors import MacaronError
from macaron.evaluate.bleu import tokenised_bleu
from macaron.evaluate.model import translate_all
from macaron.evaluate.scores import sacre_bleu
from macaron.models import TranslationConfig, TranslationModel, preset
from macaron.nn import Context
from macaron.nn.embedding import FIRST_POSITION
from macaron.nn.loss import SmoothedCrossEntropy
from macaron.tasks.recipe import DecodeSettings, Recipe
from macaron.text.vocabulary import EOS, PAD
from macaron.train.settings import TrainSettings
from macaron.train.task import Piece

CHUNK_ROWS = 4096  # packed rows that are laid out and sent to the device at once


@dataclass(frozen=True)
class Batch:
    """Source (B, S); target (B, T) and the same shifted right, ``previous``; for packed rows also positions and the
    number of the sentence (0: nothing) that each place belongs to.
    """

    source: Tensor
    target: Tensor
    previous: Tensor
    source_places: Tensor | None = None
    target_places: Tensor | None = None
    source_sentence: Tensor | None = None
    target_sentence: Tensor | None = None


class TranslationLoss(nn.Module):
    """Model and loss as one module, for DDP and FSDP."""

    def __init__(self, model: TranslationModel, smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.criterion = SmoothedCrossEntropy(smoothing, PAD)

    def forward(self, batch: Batch) -> Tensor:
        """The sums of smoothed loss and nll over the targets of a batch."""
        model, embedding = self.model, self.model.embedding
        if batch.source_sentence is None:
            real = batch.source != PAD
            states = model.decode(batch.previous, model.encode(batch.source, real), real)
        else:
            source, target = batch.source_sentence, batch.target_sentence
            assert target is not None
            x = embedding(batch.source, batch.source_places)
            memory = model.encoder(x, Context(mask=_same(source, source), kernel=model.kernel))
            size = target.shape[1]
            triangle = torch.ones(size, size, dtype=torch.bool, device=target.device).tril()
            y = embedding(batch.previous, batch.target_places)
            states = model.decoder(
                y,
                Context(
                    mask=_same(target, target) & triangle,
                    memory=memory,
                    memory_mask=_same(target, source),
                    kernel=model.kernel,
                ),
            )
        return self.criterion(states, embedding.tokens.weight, batch.target)


def _same(queries: Tensor, keys: Tensor) -> Tensor:
    """Which positions belong to one sentence, (B, 1, T, S)."""
    return (queries.unsqueeze(-1) == keys.unsqueeze(-2)).unsqueeze(1)


class TranslationTask:
    """Pairs in, a translation model out."""

    loss_names = ("loss", "nll")

    def __init__(
        self, data: PreparedData, model: TranslationModel, train: TrainSettings, decode: DecodeSettings
    ) -> None:
        self.data, self.model, self.settings, self.decode = data, model, train, decode
        self.module = TranslationLoss(model, train.label_smoothing)
        on_gpu = train.device != "cpu" and torch.cuda.is_available()
        self.packing = train.batching == "pack" or (train.batching == "auto" and on_gpu)
        self.rows_per_batch = max(1, train.batch_tokens // train.row_tokens)
        self.train_pairs = data.pairs("train")
        if "valid" not in data.splits:
            raise MacaronError(f"{data.folder}: no validation data; prepare it with --valid")
        self.valid_pairs = data.pairs("valid")
        limit = min(train.max_length, train.row_tokens if self.packing else train.max_length)
        self.kept = _short(self.train_pairs, limit)
        self._buckets: list[Indices] | None = None
        self._chunk: tuple[tuple[int, int], list[Tensor]] | None = None
        self._rows: tuple[int, batching.Rows] | None = None

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "TranslationTask":
        """The task of a recipe; the model is drawn with the recipe's seed."""
        data = PreparedData.open(recipe.data)
        changes = {"vocab_size": data.vocab_size, **recipe.model.changes}
        config = preset(recipe.model.preset, **changes)
        if not isinstance(config, TranslationConfig):
            raise MacaronError(
                f"model.preset {recipe.model.preset!r} is a text encoder; for translation take macaron-small"
            )
        if config.vocab_size < data.vocab_size:
            raise MacaronError(f"model.vocab_size {config.vocab_size} is less than the data's {data.vocab_size}")
        config.tokenizer_fingerprint = data.tokenizer_fingerprint
        torch.manual_seed(recipe.train.seed)
        return cls(data, TranslationModel(config), recipe.train, recipe.decode)

    def left_out(self) -> int:
        """How many training pairs are too long for a batch or a row."""
        return len(self.train_pairs) - len(self.kept)

    # Batches.

    def plan(self, epoch: int) -> Sequence[Piece]:
        """The micro-batches of an epoch."""
        if len(self.kept) == 0:
            return []
        seed, target = self.settings.seed, self.train_pairs.target.lengths
        if not self.packing:
            if self._buckets is None:
                source = self.train_pairs.source.lengths
                found = batching.bucket(source[self.kept], target[self.kept], self.settings.batch_tokens, seed)
                self._buckets = [self.kept[batch] for batch in found]
            order = batching.epoch_order(len(self._buckets), seed, epoch)
            return [Piece(int(target[self._buckets[i]].sum()), self._buckets[i]) for i in order]
        rows = self._packed_rows(epoch)
        return _row_pieces(rows, target, self.rows_per_batch, epoch)

    def _packed_rows(self, epoch: int) -> batching.Rows:
        if self._rows is None or self._rows[0] != epoch:
            source, target = self.train_pairs.source.lengths[self.kept], self.train_pairs.target.lengths[self.kept]
            rows = batching.pack(source, target, self.settings.row_tokens, self.settings.seed, epoch)
            self._rows = epoch, batching.Rows(self.kept[rows.pairs], rows.row, rows.count)
        return self._rows[1]

    def batch(self, piece: Piece, device: torch.device) -> Batch:
        """Lay a micro-batch out on a device."""
        if isinstance(piece.data, np.ndarray):
            return _padded_batch(self.train_pairs, piece.data, device)
        epoch, start = piece.data
        chunk_size = max(1, CHUNK_ROWS // self.rows_per_batch) * self.rows_per_batch
        first = start // chunk_size * chunk_size
        if self._chunk is None or self._chunk[0] != (epoch, first):
            rows = self._packed_rows(epoch)
            # One size for all chunks: a batch that is cut from the last one has the shape of any other.
            self._chunk = (
                (epoch, first),
                _packed_tensors(self.train_pairs, rows, first, first + chunk_size, self.settings.row_tokens, device),
            )
        return _cut(self._chunk[1], start - first, self.rows_per_batch)

    def compiled_parts(self) -> list[nn.Module]:
        """The layers: small graphs, one for all layers of a stack."""
        return [*self.model.encoder.layers, *self.model.decoder.layers]

    # Validation.

    def validate(self, device: torch.device, rank: int, world: int) -> tuple[Tensor, float]:
        """Sums of the losses over this process's share."""
        pairs, width = self.valid_pairs, self.settings.row_tokens
        sums = torch.zeros(len(self.loss_names), dtype=torch.float64, device=device)
        targets = 0
        source, target = pairs.source.lengths, pairs.target.lengths
        fitting = _short(pairs, width) if self.packing else np.arange(0)
        if len(fitting):
            rows = batching.pack(source[fitting], target[fitting], width, 0, 0)
            rows = batching.Rows(fitting[rows.pairs], rows.row, rows.count)
            for piece in _row_pieces(rows, target, self.rows_per_batch, 0)[rank::world]:
                start = piece.data[1]
                tensors = _packed_tensors(pairs, rows, start, start + self.rows_per_batch, width, device)
                sums += self.module(_cut(tensors, 0, self.rows_per_batch)).double()
                targets += piece.targets
        # What is longer than a row comes in padded batches of its own, which are not worth compiling for.
        rest = np.setdiff1d(np.arange(len(pairs)), fitting)
        buckets = batching.bucket(source[rest], target[rest], self.settings.batch_tokens, 0) if len(rest) else []
        with torch.compiler.set_stance("force_eager" if self.packing else "default"):
            for batch in buckets[rank::world]:
                indices = rest[batch]
                sums += self.module(_padded_batch(pairs, indices, device)).double()
                targets += int(target[indices].sum())
        return sums, float(targets)

    def score(self, device: torch.device) -> dict[str, float]:
        """BLEU on the first validation sentences: sacreBLEU of plain text, tokenised BLEU of tokens."""
        count = min(self.settings.bleu_sentences, len(self.valid_pairs))
        if not count:
            return {}
        state = self.data.text_state("valid")
        sources = [self.valid_pairs.source[i].tolist() for i in range(count)]
        search = SearchSettings(self.decode.beam, self.decode.length_penalty, self.decode.max_length)
        with torch.compiler.set_stance("force_eager"):
            lines = translate_all(self.model, self.data.tokenizer, sources, search, self.settings.batch_tokens, state)
        references = self.data.text("valid", self.data.target_lang)[:count]
        if state == "moses":
            return {"valid_bleu": tokenised_bleu(lines, references, lower=True).score}
        return {"valid_bleu": sacre_bleu(lines, references).score}

    def save(self, folder: Path, weights: dict[str, Tensor]) -> None:
        """Write the model folder: weights, configuration, tokenizer, how to decode. There entirely or not at all."""
        aside = folder.with_name(f".{folder.name}.writing")
        shutil.rmtree(aside, ignore_errors=True)
        self.model.generation_config.num_beams = self.decode.beam
        self.model.generation_config.length_penalty = self.decode.length_penalty
        # transformers counts the start and the end of a translation too.
        self.model.generation_config.max_length = self.decode.max_length + 2
        plain = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
        self.model.save_pretrained(aside, state_dict=plain)
        self.data.tokenizer.save_pretrained(aside)
        if folder.exists():
            shutil.rmtree(folder)
        aside.rename(folder)


def _short(pairs: PairStore, limit: int) -> Indices:
    longest = np.maximum(pairs.source.lengths, pairs.target.lengths)
    return np.flatnonzero(longest <= limit)


def _row_pieces(rows: batching.Rows, lengths: Lengths, per_batch: int, epoch: int) -> list[Piece]:
    starts = range(0, rows.count, per_batch)
    of_batch = rows.row // per_batch
    targets = np.bincount(of_batch, weights=lengths[rows.pairs], minlength=len(starts))
    return [Piece(int(targets[i]), (epoch, start)) for i, start in enumerate(starts)]


def _padded_batch(pairs: PairStore, indices: Indices, device: torch.device) -> Batch:
    source = torch.from_numpy(padded(pairs.source, indices, PAD)).to(device, non_blocking=True)
    target = torch.from_numpy(padded(pairs.target, indices, PAD)).to(device, non_blocking=True)
    return Batch(source, target, _previous(target))


def _previous(target: Tensor) -> Tensor:
    """Targets shifted right behind the start, which is the end-of-sentence token."""
    shifted = torch.roll(target, 1, dims=1)
    shifted[:, 0] = EOS
    # A sentence's end is no input: what follows it is padding (or, in a packed row, the next sentence's start).
    return shifted


def _packed_tensors(
    pairs: PairStore, rows: batching.Rows, start: int, stop: int, width: int, device: torch.device
) -> list[Tensor]:
    source = packed(pairs.source, rows, start, stop, width, PAD)
    target = packed(pairs.target, rows, start, stop, width, PAD)
    # In a row the token before a sentence's first is the end of the one before it: just the start token it needs.
    arrays = [source.ids, target.ids, source.place, target.place, source.sentence, target.sentence]
    small = torch.from_numpy(np.stack(arrays).astype(np.int32))
    if device.type == "cuda":
        small = small.pin_memory()
    return list(small.to(device, non_blocking=True).unbind(0))


def _cut(tensors: list[Tensor], start: int, count: int) -> Batch:
    ids, target, place, target_place, sentence, target_sentence = (t[start : start + count] for t in tensors)
    target = target.long()
    return Batch(
        source=ids.long(),
        target=target,
        previous=_previous(target),
        source_places=place + FIRST_POSITION,
        target_places=target_place + FIRST_POSITION,
        source_sentence=sentence,
        target_sentence=target_sentence,
    )
