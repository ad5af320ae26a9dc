"""Three ways from plain text to what a subword model sees, and back.

A pipeline is a small frozen value; the tokenizer stores its settings, so that text in and text out are
treated as they were in training. `encode` makes *prepared* text:

    raw     cased plain text, unchanged but for one space in front (see `Raw`); exact both ways
    moses   normalised, Moses-tokenised, HTML-escaped and lower-cased words: the customary recipe for IWSLT14
    spaces  words that somebody has tokenised already, separated by white space
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast, get_args

from macaron.errors import MacaronError

PipelineName = Literal["raw", "moses", "spaces"]
Side = Literal["source", "target"]
#: What a given text is: plain, or already tokenised and escaped by Moses.
State = Literal["raw", "moses"]
#: What besides its name makes a pipeline; it means something for ``moses`` only.
MOSES_SETTINGS = ("source_lang", "target_lang", "lower", "normalize")


@dataclass(frozen=True)
class Raw:
    """Cased plain text.

    One space goes in front of every non-empty text and is taken off on the way back: the first word of a line
    is then the same token as that word elsewhere, and nothing is lost, whatever the text begins with.
    """

    name: PipelineName = "raw"

    def encode(self, text: str, side: Side = "source", state: State = "raw") -> str:
        """Put one space in front."""
        if state != "raw":
            raise MacaronError(
                f"the raw pipeline takes plain text, not text of state {state!r}. "
                "Detokenise the corpus, or choose pipeline 'moses'."
            )
        return " " + text if text else ""

    def decode(self, text: str, side: Side = "target", state: State = "raw") -> str:
        """Take one space off the front."""
        if state != "raw":
            raise MacaronError("the raw pipeline gives plain text only; tokenise its output where you need words")
        return text.removeprefix(" ")


@dataclass(frozen=True)
class Spaces:
    """Words that are tokenised already. White space separates them, as `str.split` sees it."""

    name: PipelineName = "spaces"

    def encode(self, text: str, side: Side = "source", state: State = "raw") -> str:
        """Separate the words by single spaces."""
        return " ".join(text.split())

    def decode(self, text: str, side: Side = "target", state: State = "raw") -> str:
        """Separate the words by single spaces."""
        return " ".join(text.split())


@dataclass(frozen=True)
class Moses:
    """The Moses scripts: normalise, tokenise with HTML escapes, lower-case; detokenise on the way back.

    `normalize` is Moses' punctuation normaliser (quotes and dashes to ASCII). The customary IWSLT14 data was
    made without it: leave it out for models of that data.
    """

    source_lang: str
    target_lang: str
    lower: bool = True
    normalize: bool = True
    name: PipelineName = "moses"

    def language(self, side: Side) -> str:
        """Return the language code of a side."""
        return self.source_lang if side == "source" else self.target_lang

    def encode(self, text: str, side: Side = "source", state: State = "raw") -> str:
        """Tokenise plain text; text of state ``moses`` is only lower-cased, never tokenised again."""
        if state == "raw":
            normalizer, tokenizer, _ = _moses_tools(self.language(side))
            if self.normalize:
                text = normalizer.normalize(text)
            words = tokenizer.tokenize(text)
            # Moses splits the last full stop of a line off even after an abbreviation; sacremoses does not.
            if words and len(words[-1]) > 1 and words[-1].endswith(".") and not words[-1].endswith(".."):
                words[-1:] = [words[-1][:-1], "."]
            text = " ".join(words)
        text = " ".join(text.split())
        return text.lower() if self.lower else text

    def decode(self, text: str, side: Side = "target", state: State = "raw") -> str:
        """Detokenise and unescape; for state ``moses`` the words stay as they are."""
        words = text.split()
        if state == "moses":
            return " ".join(words)
        detokenizer = _moses_tools(self.language(side))[2]
        return cast(str, detokenizer.detokenize(words, unescape=True))


#: What the tokenizer stores: `encode` and `decode` text of a side, see above.
Pipeline = Raw | Spaces | Moses


def make_pipeline(
    name: str,
    source_lang: str | None = None,
    target_lang: str | None = None,
    lower: bool = True,
    normalize: bool = True,
) -> Pipeline:
    """Make a pipeline from its stored settings, see ``MOSES_SETTINGS``."""
    match name:
        case "raw":
            return Raw()
        case "spaces":
            return Spaces()
        case "moses":
            if not source_lang:
                raise MacaronError("the moses pipeline needs language codes: give source_lang and target_lang")
            return Moses(source_lang, target_lang or source_lang, lower, normalize)
    raise MacaronError(f"unknown text pipeline {name!r}: choose one of {', '.join(get_args(PipelineName))}")


@lru_cache(maxsize=16)
def _moses_tools(language: str) -> tuple[Any, Any, Any]:
    try:
        from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
    except ImportError:
        raise MacaronError("the moses pipeline needs sacremoses: pip install sacremoses") from None
    return MosesPunctNormalizer(language), MosesTokenizer(language), MosesDetokenizer(language)
