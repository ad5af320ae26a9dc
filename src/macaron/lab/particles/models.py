"""Models whose particles are looked at, and the sentence in their tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from macaron.decode.folder import load_folder
from macaron.decode.settings import SearchSettings
from macaron.decode.translator import Translator
from macaron.errors import MacaronError, UsageError
from macaron.lab.particles.states import Walk, walk
from macaron.lab.particles.words import START, Words
from macaron.models.configuration import EncoderConfig, TranslationConfig
from macaron.models.encoder import EncoderForMaskedLM
from macaron.models.load import ENCODER_HEADS, find_folder, load_model, stored_type
from macaron.models.translation import TranslationModel
from macaron.ode import Scheme
from macaron.text.load_tokenizer import model_tokenizer
from macaron.text.tokenizer import MacaronTokenizer

#: More particles than a page can show, or a person see.
MOST_TOKENS = 200
Kind = Literal["translation", "encoder"]
PartName = Literal["encoder", "decoder"]

_NEXT = "The word that would come next, read from the state by the final norm and the output embedding."
_SHARED = (
    "A translation encoder predicts no words. Its states are read by its final norm and the embedding that source, "
    "target and output share: a rough reading."
)
_MASKED = "The word that the masked-word head would fill in here."


@dataclass(frozen=True)
class Part:
    """One stack with the sentence in it.

    :param lens: states (..., D) as the model would put them out, to logits (..., V); None where no head can read them
    :param lens_note: what the lens reads
    """

    name: PartName
    scheme: Scheme
    tokens: list[str]
    walk: Walk
    lens: Callable[[Tensor], Tensor] | None
    lens_note: str | None


@dataclass(frozen=True)
class Subject:
    """A model with a sentence in it.

    :param output: its own translation
    :param target: what the decoder was run over
    """

    name: str
    kind: Kind
    parameters: int
    words: Words
    source: list[str]
    parts: list[Part]
    output: str | None = None
    target: str | None = None


class Specimen:
    """A loaded model, of either kind, in float32 on the CPU."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path if (path / "config.json").is_file() else path / "model"
        self.name = _name(path)
        self.kind = _kind(path, self.folder)
        self.model: Any
        self.tokenizer: MacaronTokenizer
        self.has_head = True
        if self.kind == "translation":
            self.model, self.tokenizer = load_folder(self.folder)
        else:
            self.model, self.tokenizer, self.has_head = _load_encoder(self.folder)
        self.model = self.model.float().eval()
        self.words = Words(self.tokenizer)
        self.limit = min(MOST_TOKENS, int(self.model.config.max_position_embeddings))

    def observe(self, sentence: str, parts: Sequence[PartName], target: str | None = None) -> Subject:
        """Send a sentence through the model.

        :param target: what the decoder is run over; by default the model's own translation
        """
        return self._translation(sentence, parts, target) if self.kind == "translation" else self._encoder(sentence)

    def _subject(self, **fields: Any) -> Subject:
        return Subject(self.name, self.kind, self.model.num_parameters(), self.words, **fields)

    def _encoder(self, sentence: str) -> Subject:
        model: EncoderForMaskedLM = self.model
        (ids,) = self.tokenizer.encode_lines([sentence], recognise_specials=True)
        self._check(ids, 2, "the sentence")
        tokens = [self.words(token) for token in ids]
        steps = walk(model.model.encoder, lambda: model.model(torch.tensor([ids])))
        lens, note = (model.mlm_logits, _MASKED) if self.has_head else (None, None)
        part = Part("encoder", model.config.encoder_scheme_value(), tokens, steps, lens, note)
        return self._subject(source=tokens, parts=[part])

    def _translation(self, sentence: str, parts: Sequence[PartName], target: str | None) -> Subject:
        model: TranslationModel = self.model
        (ids,) = self.tokenizer.encode_lines([sentence])
        self._check(ids, 1, "the sentence")
        source = [self.words(token) for token in ids]
        sources = torch.tensor([ids])
        found: list[Part] = []
        if "encoder" in parts:
            steps = walk(model.encoder, lambda: model.encode(sources))
            scheme = model.config.encoder_scheme_value()
            found.append(Part("encoder", scheme, source, steps, model.logits, _SHARED))
        output: str | None = None
        if "decoder" in parts:
            output, words = self._translate(model, sentence)
            if target is not None:
                (words,) = self.tokenizer.encode_lines([target], "target")
                self._check(words, 1, "the target")
            start = model.config.decoder_start_token_id
            # The decoder sees all words but the last, the end, which it has to predict.
            seen = torch.tensor([[2 if start is None else start, *words[:-1]]])
            steps = self._decoder_walk(model, sources, seen)
            tokens = [START, *(self.words(token) for token in words[:-1])]
            scheme = model.config.decoder_scheme_value()
            found.append(Part("decoder", scheme, tokens, steps, model.logits, _NEXT))
            target = output if target is None else target
        return self._subject(source=source, parts=found, output=output, target=target)

    def _translate(self, model: TranslationModel, sentence: str) -> tuple[str, list[int]]:
        """The model's own translation: its text, and its tokens with their end. One that does not end is cut."""
        translator = Translator(model, self.tokenizer)
        longest = min(translator.defaults.get("max_length", SearchSettings.max_length), self.limit - 1)
        ((best,),) = translator.translate_nbest([sentence], nbest=1, max_length=longest)
        return best.text, list(best.tokens)

    def _decoder_walk(self, model: TranslationModel, sources: Tensor, seen: Tensor) -> Walk:
        with torch.no_grad():
            memory = model.encode(sources)
        return walk(model.decoder, lambda: model.decode(seen, memory))

    def _check(self, ids: Sequence[int], specials: int, what: str) -> None:
        """Refuse what is empty or too long; ``specials`` is the number of tokens that every text has."""
        if len(ids) <= specials:
            raise MacaronError(f"{self.path}: nothing is left of {what} in this model's tokens. Give some words.")
        if len(ids) > self.limit:
            why = "its positions end there" if self.limit < MOST_TOKENS else "a picture of more shows nothing"
            raise MacaronError(
                f"{self.path}: {what} has {len(ids)} tokens, and {self.limit} are allowed ({why}). Give a shorter one."
            )


def _name(path: Path) -> str:
    """The name of a run or a model: that of its folder, RUN/model being called RUN."""
    place = path.resolve()
    return place.parent.name if place.name == "model" and place.parent.name else place.name


def _kind(path: Path, folder: Path) -> Kind:
    if not path.is_dir():
        raise MacaronError(f"{path}: no such folder. Give a model folder or the folder of a run.")
    if not (folder / "config.json").is_file():
        raise MacaronError(f"{path}: neither a model folder nor that of a finished run: it has no config.json.")
    kinds: dict[Any, Kind] = {TranslationConfig.model_type: "translation", EncoderConfig.model_type: "encoder"}
    kind = stored_type(folder)
    if kind not in kinds:
        raise MacaronError(
            f"{path}: a model of type {kind!r}, which takes no sub-steps of a scheme; needed is one of "
            f"{', '.join(map(repr, kinds))}. `macaron convert` makes one from the authors' checkpoints."
        )
    return kinds[kind]


def _load_encoder(folder: Path) -> tuple[EncoderForMaskedLM, MacaronTokenizer, bool]:
    """An encoder, its tokenizer, and whether it can fill in words: a classifier has lost the head for that."""
    folder = find_folder(folder, EncoderConfig.model_type)
    model, missing = load_model(folder, EncoderForMaskedLM, torch.float32, ENCODER_HEADS)
    return model, model_tokenizer(folder, "encoder", model.config), not missing


def check_parts(specimens: Sequence[Specimen], parts: Sequence[PartName], target: str | None) -> None:
    """Refuse to look for what none of the models has."""
    if target is not None and ("decoder" not in parts or all(each.kind == "encoder" for each in specimens)):
        raise UsageError("--target is for the decoder of a translation model: leave it out")
    for each in specimens:
        if each.kind == "encoder" and "encoder" not in parts:
            raise UsageError(f"{each.path} has an encoder only: leave out --part decoder")
