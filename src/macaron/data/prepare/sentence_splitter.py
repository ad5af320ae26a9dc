"""Splitting paragraphs into sentences by rule.

A sentence ends at a stop (``.``, ``!``, ``?``, ``...``) with its closing quotes and brackets, if a space follows and
the next word does not begin with a lower-case letter. The rules are about full stops that do not end a sentence:

    titles              Mr. Darcy, St. John, Lt. Col. Moore     never end one
    before a number     No. 5, pp. 3, c. 1870                   end none before a number
    others              Inc., Jr., etc., U.S., p.m., J. R. R.   end one only before a word such as "The" or "He"
    list numbers        1. First                                never end one

Nothing is lost or moved: the concatenated sentences are the paragraph, except for white space.
"""

import re
from collections.abc import Callable
from functools import lru_cache, partial

from macaron.text.pipeline import State

_OPENERS = "\"'“‘„‚«‹([{¿¡*_`—–-"
_CLOSERS = "\"'”’“»›)]}*_"
#: A stop, its closing marks, and the space after it. Chinese and Japanese stops need no space.
_STOP = re.compile(rf"(?:(?<![.!?…])[.!?…]++[{re.escape(_CLOSERS)}]*+ |(?<![。！？])[。！？]++[」』）”’]* ?)(?=.)")
_WORD_AFTER = re.compile(r"\S+")
#: A word of closing marks that are separated from the stop by a space.
_LATE_CLOSERS = re.compile(rf"[)\]}}”»]+ |[{re.escape(_CLOSERS)}]+$")
#: A straight quote as a word: it closes if one is open.
_LATE_QUOTE = re.compile(r"(\"|'') ")
#: Characters in which an open quote is searched.
_QUOTED = 2_000
_ACRONYM = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]{1,2}", re.UNICODE)
_LIST_NUMBER = re.compile(r"\W*(?:\d{1,3}|[ivxIVX]{1,5}|[A-Za-z])\.")

_WORDS = str.split
#: Abbreviations before a name.
_TITLES = frozenset(
    _WORDS(
        "mr mrs ms mx dr drs prof profs rev revd fr st ste mt ft gen col lt maj capt cpt cmdr cdr adm sgt cpl pvt brig "
        "comdr supt insp hon gov pres sen sens rep reps messrs mme mlle mm msgr amb sec treas atty dir e.g i.e eg ie "
        "viz vs v cf c ca circa fl ph asst pfc sfc ens"
    )
)
#: Abbreviations before a number.
_NUMBERED = frozenset(
    _WORDS("no nos nr art arts p pp pg vol vols fig figs ch chap sec sect eq eqs ed eds op b d r n ss par ver ps pss")
)
#: Abbreviations that may end a sentence, and often do not.
_OTHERS = frozenset(
    _WORDS(
        "inc ltd co corp bros plc llc jr sr esq etc al dept univ assn assoc bldg ave blvd rd approx est orig repr "
        "abbr anon misc ph.d oz lb lbs ft yd sq gal hrs mph"
    )
)
#: The same, if capitalised; otherwise they are words.
_NAMES = frozenset(
    _WORDS(
        "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri sat sun ill calif tex fla pa "
        "penn mass conn wash ariz colo mich minn tenn ore okla wis ga va"
    )
)
#: Old money: 3s. 6d.
_COINS = re.compile(r"\d+[sdl]")
#: Words that begin a sentence far more often than they follow an abbreviation.
_STARTERS = frozenset(
    _WORDS(
        "The A An He She It They We You I This That These Those There Here His Her Its Their Our My Your In On At By "
        "For From With After Before When While As If Although Though However But And Or So Then Thus Since Because "
        "During Under Over Both Some Many Most Other Another Each All No Not What Where Who Why How Which One Two Also "
        "Today Later Despite According Following Once Until Unlike Such"
    )
)


def splitter(state: State = "raw", lang: str = "en") -> Callable[[str], list[str]]:
    """The splitter for plain text of a language, or for text that is already tokenised by Moses' rules.

    It returns the sentences of a paragraph, none of them empty.
    """
    return split_tokenised if state == "moses" else partial(_split, titles=_titles(lang))


def _split(paragraph: str, titles: frozenset[str]) -> list[str]:
    paragraph = " ".join(paragraph.split())
    # In a text without capitals a lower-case letter means nothing.
    cased = paragraph != paragraph.lower()
    sentences, start, position = [], 0, 0
    while (stop := _STOP.search(paragraph, position)) is not None:
        end = position = _late_closers(paragraph, start, stop.end())
        if end < len(paragraph) and _ends(paragraph, start, stop, end, cased, titles):
            sentences.append(paragraph[start:end].rstrip())
            start = end
    if start < len(paragraph):
        sentences.append(paragraph[start:])
    return sentences


def _late_closers(paragraph: str, start: int, end: int) -> int:
    """The start of the next sentence: after closing quotes and brackets that have a space before them."""
    while True:
        late = _LATE_CLOSERS.match(paragraph, end)
        if late is None:
            quote = _LATE_QUOTE.match(paragraph, end)
            late = quote if quote and paragraph.count(quote[1], max(start, end - _QUOTED), end) % 2 else None
        if late is None:
            return end
        end = late.end()


def _ends(paragraph: str, start: int, stop: re.Match[str], end: int, cased: bool, titles: frozenset[str]) -> bool:
    """Whether the sentence that began at ``start`` ends with a stop."""
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
    stem = before.lstrip(_OPENERS)
    starter = following.rstrip(",;:.!?" + _CLOSERS).split("'")[0].split("’")[0] in _STARTERS
    low = stem.lower()
    if low in titles and not (len(stem) == 1 and stem.isupper()):  # "c. 1870", but "vitamin C."
        return False
    if following[:1].isdigit() and (low in _NUMBERED or _COINS.fullmatch(low)):
        return False
    # An initial, an acronym, or one of the others. "I" is mostly the pronoun, but "Charles I. Jones" is not.
    if len(stem) == 1 and stem.isalpha() and (stem.isupper() or not cased):
        return starter
    if _ACRONYM.fullmatch(stem) or low in _OTHERS or (low in _NAMES and stem[0].isupper()):
        return starter if cased else False
    return True


@lru_cache(maxsize=16)
def _titles(lang: str) -> frozenset[str]:
    """Abbreviations that never end a sentence: ours for English, for other languages Moses' list as well."""
    if lang == "en":
        return _TITLES
    from sacremoses.corpus import NonbreakingPrefixes

    try:
        entries = list(NonbreakingPrefixes().words(lang, ignore_lines_startswith="#"))
    except (OSError, KeyError):  # no list for this language
        return _TITLES
    return _TITLES | {entry.lower() for entry in entries if " " not in entry and len(entry) > 1}


_TOKEN_STOPS = frozenset((".", "!", "?", "...", "…", "。", "！", "？"))
_TOKEN_CLOSERS = frozenset((")", "&#93;", "]", "}", "”", "»", "’’", "&quot;)"))
_TOKEN_QUOTES = frozenset(("&quot;", "&apos;", '"', "'", "&apos;&apos;"))


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
