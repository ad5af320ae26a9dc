"""English inflection: verbs, articles, pronouns, possessives, numbers."""

from functools import cache

from demo_grammar.lexicon import DOUBLING, EnglishVerb, Noun, Number
from demo_grammar.meaning import Owner

OWNERS: dict[Owner, str] = {
    "1sg": "my",
    "2sg": "your",
    "3m": "his",
    "3f": "her",
    "1pl": "our",
    "2pl": "your",
    "3pl": "their",
}

# (person, number or gender) to subject and object form.
PRONOUNS = {
    (1, "sg"): ("I", "me"),
    (2, "sg"): ("you", "you"),
    (3, "m"): ("he", "him"),
    (3, "f"): ("she", "her"),
    (3, "n"): ("it", "it"),
    (1, "pl"): ("we", "us"),
    (2, "pl"): ("you", "you"),
    (3, "pl"): ("they", "them"),
}

CONJUNCTIONS = {
    "weil": "because",
    "wenn": "if",
    "obwohl": "although",
    "als": "when",
    "während": "while",
    "bevor": "before",
    "dass": "that",
    "ob": "whether",
    "und": "and",
    "aber": "but",
    "denn": "because",
}
QUESTION_WORDS = {"warum": "why", "wann": "when", "wo": "where", "wohin": "where", "wie oft": "how often"}

# fmt: off
_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)
# fmt: on
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def number_word(number: int) -> str:
    """A number from 2 to 99 in words."""
    if number < 20:
        return _SMALL[number]
    ones = number % 10
    return _TENS[number // 10] + (f"-{_SMALL[ones]}" if ones else "")


def article(following: str) -> str:
    """The indefinite article before a word: an before a vowel sound."""
    return "an" if following[0] in "aeiou" and not following.startswith(("uni", "use", "eu", "one")) else "a"


def noun_form(noun: Noun, number: Number) -> str:
    """Singular or plural."""
    return noun.english_plural if number == "pl" else noun.english


def possessive(text: str) -> str:
    """The possessive of a noun phrase or name: the boy's, the boys'."""
    return text + ("'" if text.endswith("s") else "'s")


@cache
def third_person(base: str) -> str:
    """He reads, goes, watches, tries, has."""
    if base == "have":
        return "has"
    if base.endswith(("s", "x", "ch", "sh", "o")):
        return base + "es"
    return base[:-1] + "ies" if base.endswith("y") and base[-2] not in "aeiou" else base + "s"


@cache
def progressive(base: str) -> str:
    """The -ing form."""
    if base in DOUBLING:
        return base + base[-1] + "ing"
    if base.endswith("ie"):
        return base[:-2] + "ying"
    return (base[:-1] if base.endswith("e") and not base.endswith("ee") else base) + "ing"


def be(person: int, number: Number, past: bool) -> str:
    """The verb to be."""
    if number == "pl" or person == 2:
        return "were" if past else "are"
    if past:
        return "was"
    return "am" if person == 1 else "is"


def finite(verb: EnglishVerb, person: int, number: Number, past: bool) -> str:
    """A verb other than to be in the simple present or past."""
    if past:
        return verb.past
    return third_person(verb.base) if (person, number) == (3, "sg") else verb.base
