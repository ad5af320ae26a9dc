"""An encoder on a device: texts become tokens and batches, ``<cls> a </s>`` and ``<cls> a </s> b </s>``.

A language model takes its place: ``</s> a <cls>`` and ``</s> a </s> b <cls>``, since its last token has seen all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from macaron.data.batching import Indices
from macaron.device import choose_device, to_device
from macaron.errors import MacaronError, not_finite, require
from macaron.models.encoder import EncoderForSequenceClassification
from macaron.models.load import ENCODER_HEADS, find_folder, load_model, model_kind
from macaron.models.translation import LanguageForSequenceClassification
from macaron.processes import Workers
from macaron.tasks.classification import ClassificationBatch, ClassificationLoss, Numbers, Objective
from macaron.text.load_tokenizer import model_tokenizer
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import CLS, EOS, PAD, TokenizerKind
from macaron.train import step
from macaron.train.failures import memory_explained

Precision = Literal["auto", "float32", "bfloat16"]
Tokens = NDArray[np.int32]
#: Longest example where neither the user nor the model says otherwise.
MAX_LENGTH = 256
#: Examples that are predicted at once.
PREDICTED = 128
#: Lengths that batches are padded to where there should be few shapes.
LENGTHS = (32, 64, 128, 256, 512)
#: With more texts, a tokenizer written in Python runs in several processes.
MANY = 40_000
_CHUNK = 5_000


@dataclass(frozen=True)
class Encoded:
    """Examples as tokens, without special tokens.

    :param texts: one or two lists, each with one array per example
    :param targets: as the loss takes them, (N,); zeros where there are no labels
    :param labels: class indices or scores, as the metrics take them
    """

    texts: tuple[list[Tokens], ...]
    targets: NDArray[Any]
    truncated: int
    labels: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.texts[0])

    @cached_property
    def lengths(self) -> Indices:
        """Tokens of each example, including special tokens, (N,)."""
        counts = np.array([[len(text) + 1 for text in texts] for texts in self.texts], dtype=np.int64)
        return np.asarray(1 + counts.sum(axis=0))


def _tokens(tokenizer: MacaronTokenizer, texts: list[str]) -> list[Tokens]:
    return [np.asarray(ids, dtype=np.int32) for ids in tokenizer.encode_lines(texts, add_special_tokens=False)]


class EncoderOnDevice:
    """An encoder with a classifier's head on a device, its tokenizer, and how examples become batches.

    :param max_length: tokens of an example; longer ones are cut; default: the model's
    :param new_head: to fine-tune any of our encoders, another task's classifier too; the head is drawn anew
    :param dropout: everywhere; the model's own by default
    """

    module: ClassificationLoss
    #: Models that will do.
    kinds: ClassVar[tuple[TokenizerKind, ...]] = ("encoder", "language")

    def __init__(
        self,
        path: Path,
        device: str = "auto",
        precision: Precision = "auto",
        max_length: int | None = None,
        new_head: bool = False,
        dropout: float | None = None,
    ) -> None:
        self.folder = find_folder(path, *self.kinds)
        kind: TokenizerKind = model_kind(self.folder)
        changes: dict[str, Any] = {} if dropout is None else {"dropout": dropout, "attention_dropout": dropout}
        if new_head:
            changes |= {"id2label": None, "problem_type": None, "classification": None}
        network = EncoderForSequenceClassification if kind == "encoder" else LanguageForSequenceClassification
        #: The special tokens at both ends of an example.
        self.ends = (CLS, EOS) if kind == "encoder" else (EOS, CLS)
        model, missing = load_model(self.folder, network, torch.float32, ENCODER_HEADS, **changes)
        tuned = new_head or not missing
        require(tuned, f"{self.folder}: not fine-tuned yet, it has no classifier. Make one with `macaron finetune`.")
        self.tokenizer = model_tokenizer(self.folder, kind, model.config)
        #: What config.json says of the input: number of texts, their columns, longest example.
        self.takes: dict[str, Any] = model.config.classification or {}
        self.max_length = int(max_length or self.takes.get("max_length", MAX_LENGTH))
        if model.config.position_vectors == "learned":
            self.max_length = min(self.max_length, model.config.max_position_embeddings)
        self.device = choose_device(device)
        self.on_gpu = self.device.type == "cuda"
        half = precision == "bfloat16" or (precision == "auto" and self.on_gpu)
        self.autocast = partial(step.precision, self.device, half)
        self.model = model.to(self.device)
        #: Few shapes of batches: filler rows complete a batch, lengths are those of ``LENGTHS``.
        self.fixed_shapes = self.on_gpu

    def encode(
        self, texts: Sequence[Sequence[str]], objective: Objective | None = None, labels: Sequence[float] = ()
    ) -> Encoded:
        """Tokenise examples, one or two lists; of those longer than ``max_length`` the longer text is cut first."""
        # Texts repeat (the premises of MNLI).
        unique = list(dict.fromkeys(text for column in texts for text in column))
        chunk = _CHUNK if self.tokenizer.pipeline == "moses" and len(unique) > MANY else max(len(unique), 1)
        chunks = (unique[start : start + chunk] for start in range(0, len(unique), chunk))
        with Workers() as workers:  # started only if there are several chunks
            parts = list(workers.map(partial(_tokens, self.tokenizer), chunks))
        tokens = dict(zip(unique, (each for part in parts for each in part), strict=True))
        columns = tuple([tokens[text] for text in column] for column in texts)
        room = self.max_length - 1 - len(columns)
        truncated = 0
        for i, each in enumerate(zip(*columns, strict=True)):
            if sum(map(len, each)) > room:
                truncated += 1
                # Of two texts the longer one is cut first, then both equally.
                second = min(len(each[1]), max(room // 2, room - len(each[0]))) if len(each) > 1 else 0
                for column, keep in zip(columns, (room - second, second), strict=False):
                    column[i] = column[i][:keep]
        targets = np.zeros(len(columns[0]), dtype=np.float32) if objective is None else objective.targets(labels)
        return Encoded(columns, targets, truncated, labels)

    def batch(
        self, data: Encoded, rows: Indices, size: int, swap: NDArray[np.bool_] | None = None
    ) -> ClassificationBatch:
        """The batch of some examples.

        :param size: number of rows if shapes are fixed
        :param swap: the examples whose second text comes first, (N,)
        """
        first = self.tokenizer.segments[0]
        count, width = len(rows), int(data.lengths[rows].max())
        if self.fixed_shapes:
            count = max(size, count)
            width = min((length for length in (*LENGTHS, self.max_length) if length >= width), default=width)
        tokens = np.full((count, width), PAD, dtype=np.int64)
        segments = np.full((count, width), first, dtype=np.int64)  # padding has the first text's
        weights = (np.arange(count) < len(rows)).astype(np.float32)
        # A filler row repeats the first: a row without any real token would give NaN.
        filled = np.append(rows, np.full(count - len(rows), rows[0]))
        for i, index in enumerate(filled):
            texts = [column[index] for column in data.texts]
            if swap is not None and swap[index]:
                texts.reverse()
            row = np.concatenate([part for text in texts for part in ((EOS,), text)])
            tokens[i, : len(row)], segments[i, len(texts[0]) + 2 : len(row) + 1] = row, 1 - first
            tokens[i, 0], tokens[i, len(row)] = self.ends
        arrays = (tokens, segments, tokens != PAD, data.targets[filled], weights)
        return ClassificationBatch(*(to_device(torch.from_numpy(array), self.device) for array in arrays))

    def over_batches(self, data: Encoded, compute: Callable[[ClassificationBatch], Tensor], width: int) -> Numbers:
        """What a function of a batch, (B, width), gives for all examples, in their order, (N, width)."""
        found = np.zeros((len(data), width), dtype=np.float64)
        order = np.argsort(data.lengths, kind="stable")  # little padding
        with torch.no_grad(), self.autocast():
            for start in range(0, len(order), PREDICTED):
                rows = order[start : start + PREDICTED]
                batch = self.batch(data, rows, PREDICTED)
                found[rows] = compute(batch)[: len(rows)].double().cpu().numpy()
        return found

    def all_logits(self, data: Encoded) -> Numbers:
        """The logits of all examples in their order, (N, logits)."""
        self.module.eval()
        return self.over_batches(data, self.module.logits, self.module.objective.logits)

    def memory_explained(self, examples: str) -> Any:
        """A context in which running out of memory raises a message that says what to change."""
        what = f"out of memory with {examples} of up to {self.max_length} tokens"
        return memory_explained(f"{what}: take a smaller --batch-size or --max-length")


class Predictor(EncoderOnDevice):
    """A fine-tuned model that takes texts.

    :param path: a model folder that ``macaron finetune`` or ``macaron glue`` wrote, or a converted classifier
    """

    def __init__(
        self, path: Path, device: str = "auto", precision: Precision = "auto", max_length: int | None = None
    ) -> None:
        super().__init__(path, device, precision, max_length)
        #: Texts of an example; None where the model does not say.
        self.texts: int | None = self.takes.get("texts")
        #: Names of their columns in the training file.
        self.columns: list[str] = self.takes.get("columns", [])
        config = self.model.config
        if config.num_labels > 1:
            self.objective = Objective("classes", config.label_names)
        elif config.problem_type == "multi_label_classification":
            # A converted classifier of two classes with one logit, whose names are unknown.
            self.objective = Objective("one-logit", ("0", "1"))
        else:
            self.objective = Objective("score", config.label_names)
        self.module = ClassificationLoss(self.model, self.objective)
        #: What a prediction consists of.
        self.keys = ("score",) if self.objective.kind == "score" else ("label", "probability", "probabilities")

    def labels(self, texts: Sequence[str], top_k: int = 1) -> list[list[dict[str, Any]]]:
        """The best labels of each text with their scores, as Hugging Face's task gives them."""
        found = []
        for each in self.predict([texts]) if texts else []:
            shares = each.get("probabilities") or {"score": each["score"]}
            best = sorted(shares.items(), key=lambda pair: -pair[1])[:top_k]
            found.append([{"label": label, "score": share} for label, share in best])
        return found

    def predict(self, texts: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """The predictions for all examples: ``score``, or ``label``, its ``probability`` and all ``probabilities``."""
        if self.texts is not None and len(texts) != self.texts:
            raise MacaronError(f"{self.folder}: the model takes {self.texts} text(s) per example, not {len(texts)}")
        data = self.encode(texts)
        with self.memory_explained("examples"):
            logits = self.all_logits(data)
        if not np.isfinite(logits).all():
            raise not_finite(self.folder)
        values = self.objective.predictions(logits)
        labels = self.objective.labels
        if self.objective.kind == "score":
            return [{"score": float(value)} for value in values]
        if self.objective.kind == "one-logit":
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        found = []
        for value, row in zip(values, torch.from_numpy(logits).softmax(dim=1).tolist(), strict=True):
            chances = dict(zip(labels, row, strict=True))
            found.append({"label": labels[int(value)], "probability": max(row), "probabilities": chances})
        return found

    def predict_rows(self, rows: Sequence[Sequence[str]]) -> list[dict[str, Any] | None]:
        """The same for examples given one by one; None for an example without any text."""
        given = [any(text.strip() for text in row) for row in rows]
        full = [row for row, some in zip(rows, given, strict=True) if some]
        found = iter(self.predict([list(column) for column in zip(*full, strict=True)]) if full else ())
        return [next(found) if some else None for some in given]
