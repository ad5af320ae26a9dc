"""The ``[train]`` and ``[pretrain]`` sections of a recipe."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from macaron.errors import MacaronError, require
from macaron.limits import LONGEST_TEXT, MOST_TOKENS, Between

#: What is trained.
TaskName = Literal["translation", "pre-training", "language-model"]
#: The limits of a run. The first one given is the length of a schedule that ends with the run.
LIMITS = ("max_updates", "max_epochs", "max_minutes")
#: Validation sentences that are translated where BLEU or chrF is needed and bleu_sentences does not say how many.
SCORED_SENTENCES = 2000
#: What the values of some keys must be: a test, and the words for it.
_RANGES: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (("accumulate", "log_every", "keep"), lambda value: value >= 1, "at least 1"),
    (LIMITS, lambda value: value is None or 0 < value <= 2**53, "above 0"),
    (("learning_rate", "epsilon"), lambda value: 0 < value < math.inf, "above 0"),
    (
        (
            *("warmup", "warmup_rate", "weight_decay", "clip_norm", "average"),
            *("validate_every", "checkpoint_every", "bleu_sentences", "patience"),
        ),
        lambda value: 0 <= value < math.inf,
        "at least 0",
    ),
    (("label_smoothing", "ema", "final_rate"), lambda value: 0 <= value < 1, "at least 0 and below 1"),
    (("betas",), lambda value: len(value) == 2 and all(0 <= beta < 1 for beta in value), "two numbers in [0, 1)"),
    (("seed",), lambda value: 0 <= value < 1 << 31, "from 0 to 2147483647"),
)


@dataclass(frozen=True)
class TrainSettings:
    """How to train. ``recipes/your-own.toml`` explains every key.

    Every update sees the same global batch whatever the number of processes. The first limit given, in the order of
    `LIMITS`, is also the length of a linear or cosine schedule; the others only stop the run. So max_minutes beside
    max_updates is a pure cap: unless it stops the run, the result does not depend on the speed of the machine. Alone,
    max_minutes becomes a number of updates before the first one (`macaron.train.pace`). A resumed run may have other
    limits, but not another length of such a schedule.
    """

    task: TaskName | Literal["auto"] = "auto"
    batch_tokens: int = 4096
    accumulate: int = 1
    batching: Literal["auto", "bucket", "pack"] = "auto"
    row_tokens: int = 192
    max_length: int = 1024
    max_updates: int | None = None
    max_epochs: int | None = None
    max_minutes: float | None = None
    learning_rate: float = 1e-3
    betas: tuple[float, ...] = (0.9, 0.98)
    epsilon: float = 1e-8
    weight_decay: float = 1e-4
    clip_norm: float = 0.0
    label_smoothing: float = 0.1
    schedule: Literal["inverse-sqrt", "linear", "cosine", "constant"] = "inverse-sqrt"
    warmup: int = 4000
    warmup_rate: float = 1e-7
    final_rate: float = 0.0
    average: int = 0
    ema: float = 0.0
    embeddings: Literal["random", "counts"] = "random"
    freeze: tuple[str, ...] = ()
    seed: int = 1
    log_every: int = 100
    validate_every: int = 0
    checkpoint_every: int = 0
    best_metric: Literal["loss", "bleu", "chrf"] = "loss"
    bleu_sentences: int = 0
    patience: int = 0
    keep: int = 2
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    distributed: Literal["ddp", "fsdp"] = "ddp"
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for names, fine, what in _RANGES:
            for name in names:
                value = getattr(self, name)
                if not fine(value):
                    shown = list(value) if isinstance(value, tuple) else value
                    raise MacaronError(f"train.{name} must be {what}, not {shown}")
        Between(1, MOST_TOKENS).check("train.batch_tokens", self.batch_tokens)
        for name in ("row_tokens", "max_length"):
            Between(1, LONGEST_TEXT).check(f"train.{name}", getattr(self, name))
        if all(getattr(self, name) is None for name in LIMITS):
            raise MacaronError("the run needs a limit: set train.max_updates, train.max_epochs or train.max_minutes")
        if self.average == 1:
            raise MacaronError("train.average = 1 averages nothing: take 0 (off) or at least 2")

    def wants_gpu(self, available: bool) -> bool:
        """Whether to train on a GPU."""
        if self.device == "cuda" and not available:
            raise MacaronError("train.device = cuda, but PyTorch sees no GPU here: take device = auto or cpu")
        return self.device != "cpu" and available

    def packs(self, on_gpu: bool) -> bool:
        """Whether batches are packed rows."""
        return self.batching == "pack" or (self.batching == "auto" and on_gpu)

    @property
    def scored_sentences(self) -> int:
        """How many validation sentences are translated, at most."""
        return self.bleu_sentences or (0 if self.best_metric == "loss" else SCORED_SENTENCES)

    @property
    def kept(self) -> int:
        """How many checkpoints are kept."""
        return max(self.keep, self.average)

    @property
    def fixed_limits(self) -> tuple[str, ...]:
        """The limits that decide the schedule's length, and so every learning rate: they cannot change on resume.

        They are the first one given, and those before it, which were not given.
        """
        if self.schedule not in ("linear", "cosine"):
            return ()
        first = next(i for i, name in enumerate(LIMITS) if getattr(self, name) is not None)
        return LIMITS[: first + 1]


@dataclass(frozen=True)
class PretrainSettings:
    """What an encoder learns from plain text: ``[pretrain]``. ``recipes/bert-base.toml`` explains every key.

    (label_smoothing, max_length and bleu_sentences of [train] are for translation and have no effect here, nor for
    language models; best_metric is loss.)
    """

    mlm: bool = True
    mask_ratio: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    cls_target: bool = False
    nsp: bool = True
    next_share: float = 0.5
    pairs: Literal["spans", "sentences"] = "spans"
    max_tokens: int | None = None
    short_share: float = 0.1
    attention: Literal["auto", "masked", "flash"] = "auto"

    def __post_init__(self) -> None:
        require(self.mlm or self.nsp, "pretrain.mlm and pretrain.nsp are both off: nothing is left to learn")
        predicted = self.mlm or not self.cls_target
        require(predicted, "pretrain.cls_target is a word to predict: it needs pretrain.mlm = true")
        require(0 < self.mask_ratio < 1, f"pretrain.mask_ratio must be above 0 and below 1, not {self.mask_ratio}")
        for name in ("mask_share", "random_share", "next_share", "short_share"):
            share = getattr(self, name)
            require(0 <= share <= 1, f"pretrain.{name} must be from 0 to 1, not {share}")
        changed = self.mask_share + self.random_share
        require(changed <= 1 + 1e-9, "pretrain.mask_share and pretrain.random_share are more than 1 together")

    @property
    def ratio(self) -> float:
        """The share of words that is predicted."""
        return self.mask_ratio if self.mlm else 0.0

    def longest(self, train: TrainSettings) -> int:
        """Tokens of the longest text."""
        return train.row_tokens if self.max_tokens is None else self.max_tokens

    def check(self, train: TrainSettings) -> None:
        """Refuse a combination with [train] that cannot work."""
        problem = "train.batching = bucket is for translation; rows of plain text are packed: leave it out"
        require(train.batching != "bucket", problem)
        problem = f"train.best_metric = {train.best_metric!r} is for translation; plain text has 'loss': leave it out"
        require(train.best_metric == "loss", problem)
        name = "train.row_tokens" if self.max_tokens is None else "pretrain.max_tokens"
        problem = f"{name} must be at least 8, and pretrain.max_tokens at most train.row_tokens"
        require(8 <= self.longest(train) <= train.row_tokens, problem)
