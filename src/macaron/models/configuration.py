"""The model configuration: transformers' config classes are the only one there is."""

import dataclasses
import difflib
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from macaron.errors import MacaronError
from macaron.nn.budget import LayerShape
from macaron.nn.layer import LayerSettings
from macaron.ode import Scheme, Step, lift
from macaron.ode import scheme as find_scheme

SchemeData = str | dict[str, Any]


class _LayerFields:
    """What the two configurations compute from their fields in the same way."""

    def finish(self) -> None:
        """Bring schemes into a form that JSON can hold and check what can be checked before anything is built."""
        config: Any = self
        for name in ("scheme", "decoder_scheme"):
            value = getattr(config, name, None)
            if isinstance(value, Scheme):
                setattr(config, name, value.to_dict())
        for name in ("prologue", "epilogue", "decoder_prologue", "decoder_epilogue"):
            steps = steps_of(getattr(config, name, None), name)
            if steps:
                setattr(config, name, [[step.operator, step.coefficient] for step in steps])
            if "H" in [step.operator for step in steps] and not name.startswith("decoder"):
                raise MacaronError(f"{name} has cross-attention (H), which an encoder lacks")
        for name in ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "head_size"):
            if getattr(config, name) is not None and getattr(config, name) < 1:
                raise MacaronError(f"{name} must be at least 1, not {getattr(config, name)}")
        if config.hidden_size % config.num_attention_heads and config.head_size is None:
            raise MacaronError(
                f"hidden_size ({config.hidden_size}) is not a multiple of num_attention_heads "
                f"({config.num_attention_heads}): change one of them or give head_size"
            )
        if not config.tie_word_embeddings:
            raise MacaronError("tie_word_embeddings=False is not supported: input and output share one embedding")
        scheme = find_scheme(config.scheme)
        if "H" in scheme.operators:
            raise MacaronError(
                f"scheme {scheme.name!r} has cross-attention (H), which an encoder lacks: give it as decoder_scheme"
            )
        self.layer_settings()

    def refuse_misspelled(self, extra: dict[str, Any]) -> None:
        """Refuse a field that is nearly one of ours; transformers keeps others, which later versions may know."""
        known = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        for name in extra:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
            if close and name not in known:
                raise MacaronError(f"no field {name!r} in {type(self).__name__}; did you mean {close[0]!r}?")

    def layer_settings(self) -> LayerSettings:
        """The settings of every layer of the model."""
        config: Any = self
        return LayerSettings(
            shape=LayerShape(
                hidden_size=config.hidden_size,
                num_heads=config.num_attention_heads,
                head_size=config.head_size or config.hidden_size // config.num_attention_heads,
                inner_size=config.intermediate_size,
                norm_affine=config.norm_affine,
                inner_sizes=None if config.inner_sizes is None else tuple(config.inner_sizes),
            ),
            norm=config.norm,
            norm_eps=config.layer_norm_eps,
            activation=config.activation,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            activation_dropout=config.activation_dropout,
            integrator=config.integrator,
            tying=config.tying,
            init=config.initializer,
        )

    def encoder_scheme_value(self) -> Scheme:
        """The encoder's scheme."""
        config: Any = self
        return find_scheme(config.scheme)


def steps_of(data: Any, name: str = "prologue") -> tuple[Step, ...]:
    """The sub-steps of a prologue or epilogue."""
    try:
        return tuple(Step(str(operator), float(coefficient)) for operator, coefficient in data or ())
    except (TypeError, ValueError):
        raise MacaronError(f'{name} must be a list of sub-steps such as [["G", 0.5]], not {data!r}') from None


@strict
class TranslationConfig(_LayerFields, PreTrainedConfig):
    """An encoder-decoder for translation.

    :param scheme: splitting scheme of the encoder: a name (``macaron ode list``) or a scheme as data
    :param decoder_scheme: that of the decoder; by default the encoder's with F replaced by F H
    :param intermediate_size: inner width of the feed-forward networks of *one layer in total*
    :param inner_sizes: their exact inner widths, one for each in a layer, instead of shares of that total
    :param integrator: how a sub-step is integrated: euler, midpoint, heun, rk3, rk4
    :param tying: none; layer: applications of an operator within a layer share weights; depth: one field for all
    :param norm: pre or post
    :param activation: relu or gelu, or a list with one for each feed-forward network of a layer
    :param prologue: sub-steps before the encoder's first layer, such as ``[["G", 0.5]]``
    :param epilogue: sub-steps after its last
    :param initializer: xavier or kaiming, both as in the authors' code
    :param tokenizer_fingerprint: of the tokenizer that the weights were trained with, checked on load
    :param evaluation: how the paper's BLEU of this model is defined: ``{"lower": ..., "compound_split": ...}``
    """

    model_type = "macaron-translation"
    attribute_map: ClassVar[dict[str, str]] = {"num_hidden_layers": "encoder_layers"}
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]

    vocab_size: int = 10000
    hidden_size: int = 512
    num_attention_heads: int = 4
    head_size: int | None = None
    intermediate_size: int = 2048
    inner_sizes: Any = None
    encoder_layers: int = 6
    decoder_layers: int = 6
    scheme: Any = "strang-gfg"
    decoder_scheme: Any = None
    integrator: str = "euler"
    tying: str = "none"
    norm: str = "pre"
    norm_affine: bool = True
    layer_norm_eps: float = 1e-5
    activation: Any = "relu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    prologue: Any = None
    epilogue: Any = None
    decoder_prologue: Any = None
    decoder_epilogue: Any = None
    initializer: str = "xavier"
    max_position_embeddings: int = 1024
    tokenizer_fingerprint: str | None = None
    evaluation: Any = None
    is_encoder_decoder: bool = True
    tie_word_embeddings: bool = True
    use_cache: bool = True
    pad_token_id: int | None = 1
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 2

    def __post_init__(self, **kwargs: Any) -> None:
        self.refuse_misspelled(kwargs)
        super().__post_init__(**kwargs)
        self.finish()
        self.decoder_scheme_value()

    def decoder_scheme_value(self) -> Scheme:
        """The decoder's scheme: given, or the encoder's lifted."""
        if self.decoder_scheme is None:
            return lift(find_scheme(self.scheme))
        scheme = find_scheme(self.decoder_scheme)
        if "H" not in scheme.operators:
            raise MacaronError(
                f"decoder_scheme {scheme.name!r} has no cross-attention (H): it could not see the source"
            )
        if "F" not in scheme.operators:
            raise MacaronError(
                f"decoder_scheme {scheme.name!r} has no self-attention (F): it could not see its own words"
            )
        return scheme


@strict
class EncoderConfig(_LayerFields, PreTrainedConfig):
    """A text encoder in the manner of BERT; the fields of its layers are those of ``TranslationConfig``.

    :param type_vocab_size: number of segments
    :param first_segment: segment id of the first sentence (the authors' code: 1)
    :param freeze_first_segment: keep the vector of the first segment at zero (as the authors' code does)
    """

    model_type = "macaron-encoder"

    vocab_size: int = 32768
    hidden_size: int = 768
    num_attention_heads: int = 12
    head_size: int | None = None
    intermediate_size: int = 3072
    inner_sizes: Any = None
    num_hidden_layers: int = 12
    scheme: Any = "strang-gfg"
    integrator: str = "euler"
    tying: str = "none"
    norm: str = "pre"
    norm_affine: bool = True
    layer_norm_eps: float = 1e-5
    activation: Any = "gelu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.1
    activation_dropout: float | int = 0.0
    prologue: Any = None
    epilogue: Any = None
    initializer: str = "kaiming"
    type_vocab_size: int = 2
    first_segment: int = 0
    freeze_first_segment: bool = False
    max_position_embeddings: int = 512
    tokenizer_fingerprint: str | None = None
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 1
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = 2

    def __post_init__(self, **kwargs: Any) -> None:
        self.refuse_misspelled(kwargs)
        super().__post_init__(**kwargs)
        self.finish()
