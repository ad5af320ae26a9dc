"""A loaded model, and a sentence traced through its stacks."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor

from macaron.decode.translator import Translator
from macaron.errors import MacaronError, not_finite
from macaron.lab.page import note
from macaron.lab.particles.projection import VIEWS, Projection, View, fit
from macaron.lab.particles.trace import Trace, trace
from macaron.models.encoder import EncoderForMaskedLM
from macaron.models.load import ENCODER_HEADS, find_folder, load_model, model_kind
from macaron.models.translation import LanguageModel, TranslationModel
from macaron.nn.stack import Stack
from macaron.ode import Scheme
from macaron.text.load_tokenizer import model_tokenizer
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import CONTINUED, TokenizerKind

#: More particles than a page can show legibly.
MAX_TOKENS = 200
PartName = Literal["encoder", "decoder"]

#: Marks where a piece is joined to its neighbour: ``unter· richt`` or ``unter ·richt``, depending on the vocabulary.
JOINT = "·"
START = "[start]"
_NETWORKS = {"translation": TranslationModel, "encoder": EncoderForMaskedLM, "language": LanguageModel}
_NAMES = {"<s>": "[s]", "<pad>": "[pad]", "</s>": "[end]", "<unk>": "[unknown]", "<mask>": "[mask]", "<cls>": "[cls]"}


@dataclass(eq=False)
class TracedPart:
    """A sentence traced through one stack, and its projections.

    :param lens: the logits (..., V) of states (..., D) as the stack would output them; None if the model has no head
    :param aligned: whether it is rotated towards the same part of another model, or that part towards it
    """

    name: PartName
    scheme: Scheme
    tokens: list[str]
    trace: Trace
    lens: Callable[[Tensor], Tensor] | None
    lens_note: str | None
    views: dict[View, Projection] = field(init=False)
    aligned: bool = False

    def __post_init__(self) -> None:
        states = {"raw": [frame.state for frame in self.trace.frames], "normalised": self.trace.normalised()}
        self.views = {view: fit(torch.stack(states[view]).double().numpy()) for view in VIEWS}


@dataclass(frozen=True)
class TracedSentence:
    """A sentence traced through a model."""

    model: "TracedModel"
    source: list[str]
    parts: list[TracedPart]
    output: str | None = None
    target: str | None = None


class TracedModel:
    """A model folder or a run's folder, loaded in float32 on the CPU."""

    def __init__(self, path: Path) -> None:
        self.path = path
        own = path.resolve()
        #: The name of the folder; RUN/model is called RUN.
        self.name = own.parent.name if own.name == "model" and own.parent.name else own.name
        folder = find_folder(path)
        self.kind: TokenizerKind = model_kind(folder)
        heads = ENCODER_HEADS if self.kind == "encoder" else ()
        self.model, missing = load_model(folder, _NETWORKS[self.kind], torch.float32, heads)
        self.lenses: dict[PartName, tuple[Any, str | None]] = {"encoder": (None, None)}
        if self.kind != "encoder":
            self.lenses["encoder"] = (self.model.logits, note("particles", "shared"))
            self.lenses["decoder"] = (self.model.logits, note("particles", "next"))
        elif not missing:  # a classifier has no head for masked words
            self.lenses["encoder"] = (self.model.mlm_logits, note("particles", "masked"))
        self.tokenizer = model_tokenizer(folder, self.kind, self.model.config)
        self.labels = TokenLabels(self.tokenizer)
        self.folder = folder
        self.limit = min(MAX_TOKENS, int(self.model.config.max_position_embeddings))

    def trace(self, sentence: str, parts: Sequence[PartName], target: str | None = None) -> TracedSentence:
        """Trace a sentence through the model."""
        model, translates = self.model, self.kind == "translation"
        (ids,) = self.tokenizer.encode_lines([sentence], recognise_specials=self.kind == "encoder")
        self._check(ids, 2 if self.kind == "encoder" else 1, "the sentence")
        source, sources = list(map(self.labels, ids)), torch.tensor([ids])
        found: list[TracedPart] = []
        output = made = None
        if self.kind == "language":
            found.append(self._part("decoder", source, model.decoder, lambda: model.decode(sources)))
        elif "encoder" in parts:
            stack, encode = (model.encoder, model.encode) if translates else (model.model.encoder, model.model)
            found.append(self._part("encoder", source, stack, lambda: encode(sources)))
        if translates and "decoder" in parts:
            translator = Translator(model, self.tokenizer)
            longest = min(translator.settings.max_length, self.limit - 1)
            ((best,),) = translator.translate_nbest([sentence], nbest=1, max_length=longest)
            output, words = best.text, list(best.tokens)  # with their end, or cut at the longest length
            if target is not None:
                (words,) = self.tokenizer.encode_lines([target], "target")
                self._check(words, 1, "the target")
            start = model.config.decoder_start_token_id
            # The decoder's input is shifted: the end token is only predicted.
            shifted = torch.tensor([[2 if start is None else start, *words[:-1]]])
            with torch.no_grad():
                memory = model.encode(sources)
            tokens = [START, *map(self.labels, words[:-1])]
            found.append(self._part("decoder", tokens, model.decoder, lambda: model.decode(shifted, memory)))
            made = output if target is None else target
        return TracedSentence(self, source, found, output, made)

    def _part(self, name: PartName, tokens: list[str], stack: Stack, forward: Callable[[], Any]) -> TracedPart:
        traced, config = trace(stack, forward), self.model.config
        if not all(bool(frame.state.isfinite().all()) for frame in traced.frames):
            raise not_finite(self.folder)
        other = name == "decoder" and self.kind == "translation"
        scheme = config.decoder_scheme_value() if other else config.encoder_scheme_value()
        return TracedPart(name, scheme, tokens, traced, *self.lenses[name])

    def _check(self, ids: Sequence[int], specials: int, what: str) -> None:
        """Refuse an empty or too long text; ``specials`` is the number of special tokens that every text has."""
        if len(ids) <= specials:
            raise MacaronError(f"{self.path}: {what} has no tokens in this model's vocabulary. Give some words.")
        if len(ids) > self.limit:
            why = "the model's positions" if self.limit < MAX_TOKENS else "more would not be legible"
            raise MacaronError(f"{self.path}: {what} has {len(ids)} tokens; {self.limit} are allowed ({why})")


class TokenLabels:
    """Tokens as labels for a reader, by id, without the marks of the subword model."""

    def __init__(self, tokenizer: MacaronTokenizer) -> None:
        self.tokenizer = tokenizer
        self.whole_words = isinstance(tokenizer.backend_tokenizer.model, WordLevel)
        self.word_end: str = getattr(tokenizer.backend_tokenizer.model, "end_of_word_suffix", None) or ""
        # The characters of a byte-level vocabulary: printable bytes are themselves, the others are shifted.
        alphabet = sorted(ByteLevel.alphabet())
        shifted = [byte for byte in range(256) if chr(byte) not in alphabet]
        self.bytes = dict(zip(alphabet, [*(ord(c) for c in alphabet if ord(c) < 256), *shifted], strict=True))

    def __call__(self, token: int) -> str:
        """The label of a token."""
        symbol = self.tokenizer.backend_tokenizer.id_to_token(token)
        if symbol is None:
            return f"[{token}]"  # a row of the embedding beyond the vocabulary
        if symbol in _NAMES:
            return _NAMES[symbol]
        if self.tokenizer.pipeline == "raw":
            return self._of_bytes(symbol)
        if symbol.startswith("<0x") and symbol.endswith(">"):
            return f"[{symbol[3:-1]}]"
        if self.whole_words:
            text = symbol.removesuffix(CONTINUED) or symbol
            continued = text != symbol
        else:
            text = symbol.removesuffix(self.word_end)
            continued = bool(self.word_end) and text == symbol
        text = html.unescape(text) if self.tokenizer.pipeline == "moses" else text
        return text + JOINT if continued else text

    def _of_bytes(self, symbol: str) -> str:
        # A piece that starts with a space starts a word.
        content = bytes(self.bytes[character] for character in symbol if character in self.bytes)
        text = content.decode("utf-8", "replace")
        word = text.strip()
        if not word:
            return "[space]"
        if "\N{REPLACEMENT CHARACTER}" in word or not word.isprintable():  # part of a character
            return f"[{content.hex(' ').upper()}]"
        # A full stop after a word, without a space, is not a piece of it.
        return JOINT + word if word[0].isalnum() and not text[0].isspace() else word
