"""Sentences as words and commas, and back."""

import re
from collections.abc import Sequence

_TOKEN = re.compile(r"[\w'-]+|,")


def words_and_commas(sentence: str, *, lower_first: bool = True) -> list[str]:
    """The words and commas of a sentence.

    :param lower_first: lower the initial letter of the sentence, since most words have no capital elsewhere
    """
    tokens = _TOKEN.findall(sentence)
    if tokens and lower_first and tokens[0] != "I":
        tokens[0] = tokens[0][0].lower() + tokens[0][1:]
    return tokens


def sentence_text(words: Sequence[str], mark: str) -> str:
    """Join words and commas (never two, never before the final mark), capitalise, and append the mark."""
    text = " ".join(words).replace(" ,", ",").replace(",,", ",").rstrip(",")
    return text[0].upper() + text[1:] + mark
