"""Four ways from plain text to what a subword model sees, and back.

The tokenizer stores the settings of its pipeline, so that input and output are treated as they were in training.
`Pipeline.encode` makes *prepared* text:

    raw     cased plain text, unchanged but for one space in front, so that all words have one; exact both ways
    moses   normalised, Moses-tokenised, HTML-escaped and lower-cased words: the customary recipe for IWSLT14
    spaces  text that is already tokenised, with tokens separated by white space
    plain   text as it is, for the tokenizers of converted models, which do the rest themselves
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import accumulate
from threading import Thread
from typing import Annotated, Any, Literal, cast, get_args

from macaron.errors import MacaronError, require, shown
from macaron.limits import LARGEST_VOCABULARY, Between
from macaron.text.vocabulary import TokenizerKind

PipelineName = Literal["raw", "moses", "spaces", "plain"]
Side = Literal["source", "target"]
#: What a given text is: plain, or already tokenised and escaped by Moses.
State = Literal["raw", "moses"]
#: A language code: a part of file names.
LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
#: What besides its name makes a pipeline; it means something for ``moses`` only.
MOSES_SETTINGS = ("source_lang", "target_lang", "lower", "normalize")

_LETTER, _ESCAPED = re.compile(r"\S"), re.compile(r"&(?:amp|lt|gt|apos|quot|#\d+);|\S")


@dataclass(frozen=True)
class Pipeline:
    """A pipeline by its name, see above, and its settings, which mean something for ``moses`` only.

    :param normalize: apply Moses' punctuation normaliser; the customary IWSLT14 data was made without it
    """

    name: str
    source_lang: str | None = None
    target_lang: str | None = None
    lower: bool = True
    normalize: bool = True

    def __post_init__(self) -> None:
        if self.name not in get_args(PipelineName):
            known = ", ".join(get_args(PipelineName))
            raise MacaronError(f"unknown text pipeline {self.name!r}: choose one of {known}")
        if self.name == "moses" and not self.source_lang:
            raise MacaronError("the moses pipeline needs language codes: give source_lang and target_lang")

    def encode(self, text: str, side: Side = "source", state: State = "raw") -> str:
        """Prepare text. For the ``moses`` pipeline, text of state ``moses`` is lower-cased, never tokenised again."""
        if self.name in ("raw", "plain"):
            if state != "raw":
                wrong = f"the {self.name} pipeline takes plain text, not text of state {state!r}"
                raise MacaronError(f"{wrong}. Detokenise the corpus, or choose pipeline 'moses'.")
            return " " + text if text and self.name == "raw" else text
        if self.name == "spaces":
            return " ".join(text.split())
        if state == "raw":
            normalizer, tokenizer, _ = _moses_tools(self._language(side))
            words = tokenizer.tokenize(normalizer.normalize(text) if self.normalize else text)
            # Moses splits the last full stop of a line off even after an abbreviation; sacremoses does not.
            if words and len(words[-1]) > 1 and words[-1].endswith(".") and not words[-1].endswith(".."):
                words[-1:] = [words[-1][:-1], "."]
            text = " ".join(words)
        text = " ".join(text.split())
        return text.lower() if self.lower else text

    def decode(self, text: str, side: Side = "target", state: State = "raw") -> str:
        """Plain text from prepared text. For state ``moses``, the words of the ``moses`` pipeline stay as they are."""
        if self.name in ("raw", "plain"):
            if state != "raw":
                raise MacaronError(f"the {self.name} pipeline gives plain text only; tokenise its output if need be")
            return text.removeprefix(" ") if self.name == "raw" else text
        if self.name == "moses" and state == "raw":
            return cast(str, _moses_tools(self._language(side))[2].detokenize(text.split(), unescape=True))
        return " ".join(text.split())

    def _language(self, side: Side) -> str:
        return str(self.source_lang if side == "source" else self.target_lang or self.source_lang)


def spans_of_original(
    text: str, prepared: str, spans: Sequence[tuple[int, int]], pipeline: str
) -> list[tuple[int, int]]:
    """Spans of prepared text as spans of the text it was made of; approximate where normalising has changed it."""
    # Both have the same characters but for white space and Moses' escapes.
    letters = [place for place, letter in enumerate(text) if not letter.isspace()]
    counts = [0] * (len(prepared) + 1)
    for letter in (_ESCAPED if pipeline == "moses" else _LETTER).finditer(prepared):
        counts[letter.end()] = 1
    counts = list(accumulate(counts))
    last = len(letters) - 1

    def place(count: int) -> int:
        return letters[min(max(count * (last + 1) // max(counts[-1], 1), 0), last)]

    return [
        (place(counts[start]), place(counts[end] - 1) + 1) if counts[start] < counts[end] else (0, 0)
        for start, end in spans
    ]


def import_moses_in_background() -> None:
    """Import the Moses tools in another thread: their regular expressions take a third of a second to compile."""

    def load() -> None:
        with suppress(MacaronError):
            _moses_tools("en")

    Thread(target=load).start()


@lru_cache(maxsize=16)
def _moses_tools(language: str) -> tuple[Any, Any, Any]:
    try:
        from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
    except ImportError:
        raise MacaronError("the moses pipeline needs sacremoses: pip install sacremoses") from None
    return MosesPunctNormalizer(language), MosesTokenizer(language), MosesDetokenizer(language)


@dataclass(eq=False, repr=False, kw_only=True)
class TokenizerSettings:
    """The settings of a tokenizer, as tokenizer_config.json stores them; transformers has keys of its own there.

    :param segments: token type ids of the first and the second sentence; padding gets the first sentence's
    :param dictionary_size: number of ids that the model knows, where the subword model needs further symbols
    :param show_unknown: decode unknown tokens as ``<unk>`` instead of dropping them with the special tokens
    :param tags: tokens that may stand in front of a source, see `macaron.text.vocabulary`
    :param model_max_length: longest input of the model, for transformers; there is no limit by default
    """

    kind: TokenizerKind = "translation"
    pipeline: PipelineName = "raw"
    source_lang: str | None = None
    target_lang: str | None = None
    lower: bool = True
    normalize: bool = True
    segments: list[Literal[0, 1]] = field(default_factory=lambda: [0, 1])
    dictionary_size: Annotated[int, Between(1, LARGEST_VOCABULARY)] | None = None
    show_unknown: bool = False
    tags: list[str] = field(default_factory=list)
    model_max_length: Any = int(1e30)

    def __post_init__(self) -> None:
        for name in ("source_lang", "target_lang"):
            language = getattr(self, name)
            known = language is None or LANGUAGE.fullmatch(str(language)) is not None
            require(known, f"{name} = {shown(language)} is not a language code (expected e.g. 'de')")


#: Their names.
SETTINGS = tuple(each.name for each in fields(TokenizerSettings))
