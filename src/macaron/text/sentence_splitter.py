"""Splitting paragraphs into sentences by rule.

A sentence ends at a stop (``.``, ``!``, ``?``, ``...``) with its closing quotes and brackets, if a space follows and
the next word does not begin with a lower-case letter. The rules are about full stops that do not end a sentence:

    titles              Mr. Darcy, St. John, Lt. Col. Moore     never end one
    before a number     No. 5, pp. 3, c. 1870                   end none before a number
    others              Inc., Jr., etc., U.S., p.m., J. R. R.   end one only before a word such as "The" or "He"
    list numbers        1. First                                never end one
    ordinals (German)   am 3. Mai, der 2. Weltkrieg             end none before a month, or after an article

The concatenated sentences are the paragraph, except for white space. English and German have lists of words in
abbreviations.toml; for other languages Moses' list is added to the English one.
"""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

from macaron.settings import load_toml
from macaron.text.pipeline import State

_TABLE, _ = load_toml(Path(__file__).with_suffix(".toml"))
_OPENERS, _CLOSERS = str(_TABLE["openers"]), str(_TABLE["closers"])
SPACELESS, _STOP, _LATE_CLOSERS = (re.compile(_TABLE[name]) for name in ("spaceless", "stop", "late_closers"))
_ACRONYM, _LIST_NUMBER = (re.compile(_TABLE[name]) for name in ("acronym", "list_number"))
_COINS, _LETTER, _ROMAN = (re.compile(_TABLE[name]) for name in ("coins", "letter", "roman"))
_TOKEN_STOPS, _TOKEN_CLOSERS, _TOKEN_QUOTES = (
    frozenset(_TABLE[name]) for name in ("token_stops", "token_closers", "token_quotes")
)
_WORD_AFTER = re.compile(r"\S+")
#: Characters in which an open quote is searched.
_QUOTED = 2_000
#: Characters before a stop that may belong to an abbreviation with spaces, as "i. d. R.".
_NEAR = 40
Abbreviations = dict[str, frozenset[str]]


@lru_cache(maxsize=16)
def abbreviations(lang: str) -> Abbreviations:
    """The words of a language, given by its code."""
    lists, _ = load_toml(Path(__file__).with_name("abbreviations.toml"))
    if lang in lists:
        return {name: frozenset(text.split()) for name, text in lists[lang].items()}
    english = abbreviations("en")
    try:
        from sacremoses.corpus import NonbreakingPrefixes

        entries = list(NonbreakingPrefixes().words(lang, ignore_lines_startswith="#"))
    except (ImportError, OSError, KeyError):  # no list for this language
        return english
    added = {entry.lower() for entry in entries if " " not in entry and len(entry) > 1 and not entry.isdigit()}
    return {**english, "titles": english["titles"] | added}


def splitter(state: State = "raw", lang: str = "en") -> Callable[[str], list[str]]:
    """What gives the sentences of a paragraph, plain or tokenised by Moses' rules; none is empty."""
    return split_tokenised if state == "moses" else partial(_split, known=abbreviations(lang))


def _split(paragraph: str, known: Abbreviations) -> list[str]:
    paragraph = " ".join(paragraph.split())
    # In a text without capitals a lower-case letter means nothing.
    cased = paragraph != paragraph.lower()
    sentences, start, position = [], 0, 0
    while (stop := _STOP.search(paragraph, position)) is not None:
        end = position = _late_closers(paragraph, start, stop.end())
        if end < len(paragraph) and _ends(paragraph, start, stop, end, cased, known):
            sentences.append(paragraph[start:end].rstrip())
            start = end
    if start < len(paragraph):
        sentences.append(paragraph[start:])
    return sentences


def _late_closers(paragraph: str, start: int, end: int) -> int:
    # The start of the next sentence: after closing quotes and brackets that have a space before them.
    while (late := _LATE_CLOSERS.match(paragraph, end)) is not None:
        if late[1] and paragraph.count(late[1], max(start, end - _QUOTED), end) % 2 == 0:
            break
        end = late.end()
    return end


def _ends(paragraph: str, start: int, stop: re.Match[str], end: int, cased: bool, known: Abbreviations) -> bool:
    mark = stop[0].rstrip()
    if mark[0] in "。！？":
        return True
    after = _WORD_AFTER.match(paragraph, end)
    following = after[0].lstrip(_OPENERS) if after else ""
    if cased and following[:1].islower():
        return False
    if mark.rstrip(_CLOSERS) != ".":  # an ellipsis, a question or an exclamation
        return following != "" or stop[0][0] not in ".…"
    word_start = max(paragraph.rfind(" ", start, stop.start()) + 1, start)
    before = paragraph[word_start : stop.start()]
    if not before:  # the stop is a word of its own
        return stop.start() > start
    if word_start == start and _LIST_NUMBER.fullmatch(before + "."):
        return False
    words = paragraph[max(start, word_start - _NEAR) : stop.start()].split(" ")
    while len(words) > 1 and _LETTER.fullmatch(words[-2]):  # "z. B." is looked up as "z.B"
        words[-2:] = ["".join(words[-2:])]
    stem = words[-1].lstrip(_OPENERS)
    word_after = following.rstrip(",;:.!?" + _CLOSERS)
    starter = word_after.split("'")[0].split("’")[0] in known["starters"]
    names = {stem, stem.lower()}
    if names & known["titles"] and not (len(stem) == 1 and stem.isupper()):  # "c. 1870", but "vitamin C."
        return False
    if following[:1].isdigit() and (names & known["numbered"] or _COINS.fullmatch(stem.lower())):
        return False
    if known["ordinals"] and stem[-1:].isdigit():
        ordinal = len(words) > 1 and words[-2].lower() in known["before_ordinals"] and len(stem) < 4 and not starter
        date = len(stem) < 3 and following[:1].isdigit()
        return not (ordinal or date or word_after in known["ordinals"])
    # An initial, an acronym, or one of the others. "I" is mostly the pronoun, but "Charles I. Jones" is not.
    if len(stem) == 1 and stem.isalpha() and (stem.isupper() or not cased):
        return starter
    if _ACRONYM.fullmatch(stem) or names & known["others"] or (known["ordinals"] and _ROMAN.fullmatch(stem)):
        return starter if cased else False
    return True


def split_tokenised(paragraph: str) -> list[str]:
    """Split a paragraph of tokens: a stop that is a token ends a sentence; abbreviations include their stop.

    A straight quote closes if it is the second, the fourth and so on of its sentence.
    """
    sentences: list[list[str]] = []
    words: list[str] = []
    quotes = 0
    ended = False
    for word in paragraph.split():
        closes = word in _TOKEN_CLOSERS or word in _TOKEN_STOPS or (word in _TOKEN_QUOTES and quotes % 2 == 1)
        if ended and not closes:
            sentences.append(words)
            words, quotes, ended = [], 0, False
        words.append(word)
        quotes += word in _TOKEN_QUOTES
        ended = ended or (word in _TOKEN_STOPS and len(words) > 1)
    if words:
        sentences.append(words)
    return [" ".join(sentence) for sentence in sentences]
