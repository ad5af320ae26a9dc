"""The ``[train]`` and ``[pretrain]`` sections of a recipe."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from macaron.errors import MacaronError, require
from macaron.limits import LONGEST_TEXT, MOST_TOKENS, Between
from macaron.settings import check_fields

#: What is trained.
TaskName = Literal["translation", "pre-training", "language-model"]
#: The limits of a run. The first one given is the length of a schedule that ends with the run.
LIMITS = ("max_updates", "max_epochs", "max_minutes")
#: The consistency losses, with the weight that their authors give them, and the share of tokens that SimCut's cut.
CONSISTENCY = {"simcut": 3.0, "r-drop": 5.0}
CUT = 0.05
#: Validation sentences that are translated where BLEU or chrF is needed and bleu_sentences does not say how many.
SCORED_SENTENCES = 2000


@dataclass(frozen=True)
class Must:
    """What a value must be, in words, and the test for it: an annotation, as `Between` is."""

    words: str
    holds: Callable[[Any], bool]

    def __contains__(self, value: Any) -> bool:
        return self.holds(value)

    def check(self, name: str, value: Any) -> None:
        """Refuse other values, by this name."""
        require(value in self, f"{name} must be {self.words}, not {value}")


_FROM_0, _FROM_1 = Between(0, 1e30), Between(1, 1e30)
_ABOVE_0 = Must("above 0 and at most 1e30", lambda value: 0 < value <= 1e30)
_LIMIT = Must("above 0 and at most 2^53", lambda value: 0 < value <= 2**53)
_BELOW_1 = Must("at least 0 and below 1", lambda value: 0 <= value < 1)
_BETAS = Must("two numbers in [0, 1)", lambda value: len(value) == 2 and all(0 <= beta < 1 for beta in value))
_SEED = Must("from 0 to 2147483647", lambda value: 0 <= value < 1 << 31)
_RATIO = Must("above 0 and below 1", lambda value: 0 < value < 1)
_Length = Annotated[int, Between(1, LONGEST_TEXT)]
_Count = Annotated[int, _FROM_0]
_Share = Annotated[float, Must("from 0 to 1", lambda value: 0 <= value <= 1)]


@dataclass(frozen=True)
class TrainSettings:
    """How to train. ``recipes/your-own.toml`` explains every key.

    Every update sees the same global batch whatever the number of processes. The first limit given, in the order of
    `LIMITS`, is also the length of a linear or cosine schedule; the others only stop the run. So max_minutes beside
    max_updates is a pure cap: unless it stops the run, the result does not depend on the speed of the machine. Alone,
    max_minutes becomes a number of updates before the first one (`macaron.train.pace`). A resumed run may have other
    limits, but not another length of such a schedule.
    """

    task: Literal[TaskName, "auto"] = "auto"
    batch_tokens: Annotated[int, Between(1, MOST_TOKENS)] = 4096
    accumulate: Annotated[int, _FROM_1] = 1
    batching: Literal["auto", "bucket", "pack"] = "auto"
    row_tokens: _Length = 128
    max_length: _Length = 1024
    directions: Literal["one", "both"] = "one"
    bpe_dropout: _Share = 0.0
    max_updates: Annotated[int, _LIMIT] | None = None
    max_epochs: Annotated[int, _LIMIT] | None = None
    max_minutes: Annotated[float, _LIMIT] | None = None
    optimiser: Literal["adam", "muon"] = "adam"
    learning_rate: Annotated[float, _ABOVE_0] = 1e-3
    betas: Annotated[tuple[float, ...], _BETAS] = (0.9, 0.98)
    epsilon: Annotated[float, _ABOVE_0] = 1e-8
    weight_decay: Annotated[float, _FROM_0] = 1e-4
    clip_norm: Annotated[float, _FROM_0] = 0.0
    label_smoothing: Annotated[float, _BELOW_1] = 0.1
    consistency: Literal["none", "simcut", "r-drop"] = "none"
    consistency_weight: Annotated[float, _FROM_0] = 0.0
    consistency_from: Annotated[float, _BELOW_1] = 0.0
    cut: Annotated[float, _RATIO] = CUT
    word_dropout: Annotated[float, _BELOW_1] = 0.0
    schedule: Literal["inverse-sqrt", "linear", "cosine", "constant"] = "inverse-sqrt"
    warmup: _Count = 4000
    warmup_rate: Annotated[float, _FROM_0] = 1e-7
    final_rate: Annotated[float, _BELOW_1] = 0.0
    average: _Count = 0
    ema: Annotated[float, _BELOW_1] = 0.0
    embeddings: Literal["random", "counts"] = "random"
    freeze: tuple[str, ...] = ()
    seed: Annotated[int, _SEED] = 1
    log_every: Annotated[int, _FROM_1] = 100
    validate_every: _Count = 0
    checkpoint_every: _Count = 0
    best_metric: Literal["loss", "bleu", "chrf"] = "loss"
    bleu_sentences: _Count = 0
    patience: _Count = 0
    keep: Annotated[int, _FROM_1] = 2
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    distributed: Literal["ddp", "fsdp"] = "ddp"
    tensorboard: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "train")
        if all(getattr(self, name) is None for name in LIMITS):
            raise MacaronError("the run needs a limit: set train.max_updates, train.max_epochs or train.max_minutes")
        if self.average == 1:
            raise MacaronError("train.average = 1 averages nothing: take 0 (off) or at least 2")
        kind = self.consistency
        idle = {"cut": CUT} if kind != "simcut" else {}
        idle |= {"consistency_weight": 0.0, "consistency_from": 0.0} if kind == "none" else {}
        for name in (name for name, value in idle.items() if getattr(self, name) != value):
            raise MacaronError(f"train.{name} changes nothing with train.consistency = {kind!r}: leave it out")
        problem = "train.word_dropout would also take tokens from the batch that SimCut compares its copy with"
        require(kind != "simcut" or not self.word_dropout, f"{problem}: leave it out, or take 'r-drop'")

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
        """The limits that decide the schedule's length, and what depends on it: they cannot change on resume.

        They are the first one given, and those before it, which were not given.
        """
        if self.schedule not in ("linear", "cosine") and not self.consistency_from:
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
    mask_ratio: Annotated[float, _RATIO] = 0.15
    mask_share: _Share = 0.8
    random_share: _Share = 0.1
    cls_target: bool = False
    nsp: bool = True
    next_share: _Share = 0.5
    pairs: Literal["spans", "sentences"] = "spans"
    max_tokens: int | None = None
    short_share: _Share = 0.1

    def __post_init__(self) -> None:
        check_fields(self, "pretrain")
        require(self.mlm or self.nsp, "pretrain.mlm and pretrain.nsp are both off: nothing is left to learn")
        predicted = self.mlm or not self.cls_target
        require(predicted, "pretrain.cls_target is a word to predict: it needs pretrain.mlm = true")
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
        for name in ("consistency", "word_dropout", "directions", "bpe_dropout"):
            value = getattr(train, name)
            require(value in ("none", "one", 0.0), f"train.{name} = {value!r} is for translation: leave it out")
        name = "train.row_tokens" if self.max_tokens is None else "pretrain.max_tokens"
        problem = f"{name} must be at least 8, and pretrain.max_tokens at most train.row_tokens"
        require(8 <= self.longest(train) <= train.row_tokens, problem)
