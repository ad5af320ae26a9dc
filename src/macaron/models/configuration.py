"""The model configuration: frozen dataclasses, the only readers of config.json. They import no torch."""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self, TypedDict

from macaron.errors import MacaronError, naming, require
from macaron.limits import LONGEST_TEXT, MOST_BEAMS, MOST_LABELS, MOST_STEPS, Between
from macaron.nn.budget import Interaction, LayerSettings, Rate
from macaron.ode import Scheme, Step, lift
from macaron.ode import scheme as find_scheme
from macaron.ode.scheme import finite
from macaron.settings import OTHERS, Origin, check_fields, convert


@dataclass(frozen=True, kw_only=True)
class ModelConfig(LayerSettings):
    """The fields that all models share, those of their layers among them.

    They are checked at construction.

    :param scheme: splitting scheme of the encoder: a name (``macaron ode list``), a `Scheme`, or a scheme as data
    :param prologue: sub-steps before the encoder's first layer, such as ``[["G", 0.5]]``; ``epilogue``: after its last
    :param position_vectors: sinusoidal (the authors'), marian (those of MarianMT) or learned
    :param scale_embedding: multiply token vectors by sqrt(hidden size); ``embedding_norm``: BERT's norm after them
    :param output_bias: the output layer has a bias, which converted models may need
    :param tokenizer_fingerprint: of the tokenizer that the weights were trained with, checked on load
    """

    kind: ClassVar[str]
    model_type: ClassVar[str]  # in config.json
    title: ClassVar[str] = "an encoder"

    bias: ClassVar[bool] = True  # type: ignore[misc]  # these are no fields of config.json
    causal: ClassVar[bool] = False  # type: ignore[misc]
    activation: str | tuple[str, ...] = "relu"
    vocab_size: int = 10000
    scheme: Any = "strang-gfg"
    prologue: Any = None
    epilogue: Any = None
    position_vectors: Literal["sinusoidal", "marian", "learned"] = "sinusoidal"
    scale_embedding: bool = True
    embedding_norm: bool = False
    output_bias: bool = False
    max_position_embeddings: int = 1024
    tokenizer_fingerprint: str | None = None
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 1
    bos_token_id: int | None = None
    eos_token_id: int | tuple[int, ...] | None = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("scheme", "decoder_scheme"):
            if isinstance(getattr(self, name, None), Scheme):
                object.__setattr__(self, name, getattr(self, name).to_dict())  # a form that JSON can hold
        for name in ("prologue", "epilogue", "decoder_prologue", "decoder_epilogue"):
            steps = steps_of(getattr(self, name, None), name)
            Between(0, MOST_STEPS).check(f"the number of sub-steps in {name}", len(steps))
            if steps:
                object.__setattr__(self, name, [[step.operator, step.coefficient] for step in steps])
            if "H" in [step.operator for step in steps] and not name.startswith("decoder"):
                raise MacaronError(f"{name} has cross-attention (H), which {self.title} lacks")
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
            given = getattr(self, name, None)
            for token in given if isinstance(given, tuple) else (given,):
                if token is not None and not 0 <= token < self.vocab_size:
                    raise MacaronError(f"{name} must be from 0 to vocab_size - 1 = {self.vocab_size - 1}, not {token}")
        if not self.tie_word_embeddings:
            raise MacaronError("tie_word_embeddings=False is not supported: input and output share one embedding")
        scheme = self.encoder_scheme_value()
        crosses = f"scheme {scheme.name!r} has cross-attention (H), which {self.title} lacks"
        require("H" not in scheme.operators, f"{crosses}: give it as decoder_scheme")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The configuration that a config.json holds.

        A field that is nearly one of ours is refused. Others are ignored: transformers writes some of its own.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name in set(data) - set(known):
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
            if close:
                raise MacaronError(f"no field {name!r} in {cls.__name__}; did you mean {close[0]!r}?")
        return cls(**{name: data[name] for name in known if name in data})

    def to_dict(self) -> dict[str, Any]:
        """What config.json holds."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {"model_type": self.model_type, **plain}

    def encoder_scheme_value(self) -> Scheme:
        """The encoder's scheme."""
        return find_scheme(self.scheme)

    @property
    def longest_input(self) -> int:
        """Tokens of the longest input, special tokens included. Rows of packed training hold several inputs."""
        return self.max_position_embeddings


def steps_of(data: Any, name: str = "prologue") -> tuple[Step, ...]:
    """The sub-steps of a prologue or epilogue."""
    try:
        return tuple(Step(str(operator), finite(name, size, "coefficient")) for operator, size in data or ())
    except (TypeError, ValueError):
        raise MacaronError(f'{name} must be a list of sub-steps such as [["G", 0.5]], not {data!r}') from None


@dataclass(frozen=True, kw_only=True)
class TranslationConfig(ModelConfig):
    """An encoder-decoder for translation.

    :param decoder_scheme: splitting scheme of the decoder; by default the encoder's with F replaced by F H
    :param decoder_settings: settings of the decoder's layers that differ from the encoder's, such as
        ``{"activation": "swiglu"}``
    :param evaluation: how the paper's BLEU of this model is defined: ``{"lower": ..., "compound_split": ...}``
    """

    kind: ClassVar[str] = "translation"
    model_type: ClassVar[str] = f"macaron-{kind}"

    encoder_layers: int = 6
    decoder_layers: int = 6
    decoder_scheme: Any = None
    decoder_settings: dict[str, Any] = field(default_factory=dict)
    decoder_prologue: Any = None
    decoder_epilogue: Any = None
    evaluation: dict[str, bool] | None = None
    is_encoder_decoder: bool = True
    use_cache: bool = True
    decoder_start_token_id: int | None = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.decoder_scheme_value()
        self.decoder_layer_settings()

    def decoder_layer_settings(self) -> LayerSettings:
        """The settings of the decoder's layers."""
        with naming("decoder_settings"):
            return self.of_decoder(self.decoder_settings)

    def decoder_scheme_value(self) -> Scheme:
        """The decoder's scheme: given, or the encoder's lifted."""
        if self.decoder_scheme is None:
            return lift(find_scheme(self.scheme))
        scheme = find_scheme(self.decoder_scheme)
        needed = {"H": "cross-attention (H): it could not see the source"}
        needed["F"] = "self-attention (F): it could not see its own words"
        for operator, lacking in needed.items():
            require(operator in scheme.operators, f"decoder_scheme {scheme.name!r} has no {lacking}")
        return scheme


def default_labels(count: int) -> dict[int, str]:
    """The names of a classifier's outputs where none are given: transformers'."""
    Between(1, MOST_LABELS).check("the number of labels", count)
    return {index: f"LABEL_{index}" for index in range(count)}


class ClassifierInput(TypedDict, total=False):
    """What a classifier takes: texts, their columns, tokens of the longest example. Other keys say where it is from."""

    texts: Annotated[int, Between(1, 2)]
    columns: list[str]
    max_length: Annotated[int, Between(1, LONGEST_TEXT)]


@dataclass(frozen=True, kw_only=True)
class TextConfig(ModelConfig):
    """What encoders and language models share. The defaults are those of BERT-base and the small GPT-2.

    :param id2label: names of a classifier's outputs; ``problem_type`` and ``classification`` are of classifiers, too
    """

    vocab_size: int = 32768
    hidden_size: int = 768
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    activation: str | tuple[str, ...] = "gelu"
    attention_dropout: Rate = 0.1
    initializer: Literal["xavier", "kaiming"] = "kaiming"
    id2label: dict[Any, str] | None = None
    problem_type: Literal["regression", "single_label_classification", "multi_label_classification"] | None = None
    classification: Annotated[ClassifierInput, OTHERS] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.id2label is not None:
            Between(1, MOST_LABELS).check("the number of labels in id2label", len(self.id2label))
            indices = [str(index) for index in range(len(self.id2label))]
            if set(map(str, self.id2label)) != set(indices):
                raise MacaronError(f"id2label must have the keys 0 to {len(indices) - 1}, each once")
            object.__setattr__(self, "id2label", {int(index): label for index, label in self.id2label.items()})
        if self.interaction("H") != Interaction():
            raise MacaronError("cross_attention is the decoder's, which an encoder of text lacks: leave it out")
        takes = self.classification or {}
        if "columns" in takes and len(takes["columns"]) != takes.get("texts"):
            raise MacaronError("classification.columns must have as many names as classification.texts says")

    @property
    def num_labels(self) -> int:
        """Number of a classifier's outputs."""
        return 2 if self.id2label is None else len(self.id2label)

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of a classifier's outputs."""
        names = self.id2label or default_labels(self.num_labels)
        return tuple(names[index] for index in range(self.num_labels))

    @property
    def longest_input(self) -> int:
        """A classifier's is that of its examples: ``macaron predict`` cuts there, too."""
        return (self.classification or {}).get("max_length", self.max_position_embeddings)

    def to_dict(self) -> dict[str, Any]:
        """What config.json holds; the fields of classifiers are left out of other models."""
        data = super().to_dict()
        for name in ("id2label", "problem_type", "classification"):
            if data[name] is None:
                del data[name]
        if self.id2label is not None:
            data["label2id"] = {label: index for index, label in self.id2label.items()}
        return data


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TextConfig):
    """A text encoder in the manner of BERT.

    :param first_segment: segment id of the first sentence (the authors' code: 1)
    :param freeze_first_segment: keep the vector of the first segment at zero (as the authors' code does)
    :param pooler: a classifier reads tanh(W x + b) of the first state, as BERT's, not the state itself
    """

    kind: ClassVar[str] = "encoder"
    model_type: ClassVar[str] = f"macaron-{kind}"

    type_vocab_size: int = 2
    first_segment: int = 0
    freeze_first_segment: bool = False
    pooler: bool = False
    max_position_embeddings: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        Between(0, self.type_vocab_size - 1).check("first_segment", self.first_segment)


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(TextConfig):
    """A language model: a decoder alone, whose F is causal. A text begins and ends with ``eos_token_id``."""

    kind: ClassVar[str] = "language"
    model_type: ClassVar[str] = f"macaron-{kind}"
    title: ClassVar[str] = "a language model"
    causal: ClassVar[bool] = True  # type: ignore[misc]

    position_vectors: Literal["sinusoidal", "marian", "learned"] = "learned"
    bos_token_id: int | None = 2
    use_cache: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if "F" not in (scheme := self.encoder_scheme_value()).operators:
            raise MacaronError(f"scheme {scheme.name!r} has no self-attention (F): it could not see its own words")


@dataclass
class GenerationSettings:
    """How a translation model is searched by default: generation_config.json, with transformers' names and meanings.

    :param max_length: of a translation in tokens, its start and end included
    """

    num_beams: Annotated[int, Between(1, MOST_BEAMS)] | None = None
    length_penalty: Annotated[float, Between(-1000, 1000)] | None = None
    max_length: Annotated[int, Between(1, LONGEST_TEXT)] | None = None
    min_new_tokens: Annotated[int, Between(0, LONGEST_TEXT)] | None = None
    suppress_tokens: list[int] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The settings that a generation_config.json holds; of those for transformers alone only tokens are checked."""
        for name in ("bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id"):
            convert(int | list[int] | None, data.get(name), Origin(), (name,))
        return cls(**{field.name: data.get(field.name) for field in dataclasses.fields(cls)})

    def to_diff_dict(self) -> dict[str, Any]:
        """The settings that have a value. (The name is that of transformers' own class.)"""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
