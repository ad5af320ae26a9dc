"""The bilingual lexicon as values: nouns, verbs, adjectives, times, read from the tables beside this file."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from demo_grammar.modifiers import ADJECTIVES, FREQUENCIES, MANNERS, POSITIONS, TIMES
from demo_grammar.nouns import CITIES, MEN, NOUNS, WOMEN
from demo_grammar.verbs import VERBS

Gender = Literal["m", "f", "n"]
Case = Literal["nom", "acc", "dat", "gen"]
Number = Literal["sg", "pl"]


# Entries exist once and are compared by identity: the sampler looks them up a great many times.
@dataclass(frozen=True, eq=False)
class Preposition:
    """A German preposition with the case it governs here, and its English counterpart."""

    german: str
    case: Case
    english: str


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun with its forms and kinds and, for a place, the prepositions of rest and direction."""

    german: str
    plural: str | None
    gender: Gender
    weak: bool
    english: str
    english_plural: str
    kinds: tuple[str, ...]
    rest: Preposition | None = None
    direction: Preposition | None = None


@dataclass(frozen=True, eq=False)
class ProperName:
    """A person (with a gender) or a town or country (without)."""

    german: str
    english: str
    gender: Gender | None


@dataclass(frozen=True, eq=False)
class EnglishVerb:
    """Principal parts, the words that follow the verb, and the particle that a pronoun precedes."""

    base: str
    past: str
    participle: str
    tail: str = ""
    particle: str = ""


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb: German principal parts (of the plain verb, without a separable prefix), English, valency."""

    infinitive: str
    prefix: str
    reflexive: bool
    third: str
    preterite: str
    participle: str
    auxiliary: Literal["h", "s"]
    english: EnglishVerb
    frame: str
    stative: bool
    preposition: Preposition | None
    subjects: tuple[str, ...]
    objects: tuple[str, ...]

    @property
    def name(self) -> str:
        """Dictionary form: aufstehen, sich freuen."""
        return ("sich " if self.reflexive else "") + self.prefix + self.infinitive


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective: predicative form, stem that takes endings, comparatives (None: not compared)."""

    german: str
    stem: str
    comparative: str | None
    english: str
    english_comparative: str | None
    kinds: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Adverb:
    """An adverb of frequency or manner."""

    german: str
    english: str


@dataclass(frozen=True)
class Time:
    """A time expression; `when` holds p(ast), n(ow), f(uture), h(abit) as far as it suits them."""

    german: str
    english: str
    when: str


# Kinds that imply a wider one, which verbs and adjectives may ask for instead.
_WIDER = {
    "thing": "object",
    "furniture": "object",
    "vehicle": "object",
    "clothes": "object",
    "device": "object",
}


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split(" | ")] for line in table.strip().splitlines()]


def _english_plural(noun: str) -> str:
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    return noun + "s"


def _noun(forms: str, english: str, kinds: str) -> Noun:
    gender, german, plural = forms.split()
    singular, _, irregular = english.partition("/")
    names = [kind for kind in kinds.split() if not kind.startswith("at=")]
    at = next((kind[3:].split(",") for kind in kinds.split() if kind.startswith("at=")), None)
    wider = dict.fromkeys(_WIDER[kind] for kind in names if kind in _WIDER)
    return Noun(
        german=german,
        plural=None if plural == "-" else plural,
        gender=_GENDERS[gender[0]],
        weak=gender.endswith("w"),
        english=singular,
        english_plural=irregular or _english_plural(singular),
        kinds=(*names, *wider, *(["at"] if at else [])),
        rest=Preposition(at[0], "dat", at[2]) if at else None,
        direction=Preposition(at[1], "dat" if at[1] == "zu" else "acc", "to") if at else None,
    )


def _english_verb(text: str) -> EnglishVerb:
    head, *rest = text.split()
    parts = head.split("/")
    base = parts[0]
    past, participle = parts[1:] if len(parts) == 3 else (_regular_past(base),) * 2
    particle = next((word[1:] for word in rest if word.startswith("+")), "")
    return EnglishVerb(base, past, participle, " ".join(w for w in rest if not w.startswith("+")), particle)


def _regular_past(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + (base[-1] if base in DOUBLING else "") + "ed"


def _verb(forms: str, english: str, valency: str) -> Verb:
    *sich, infinitive, third, preterite, participle, auxiliary = forms.split()
    prefix, _, plain = infinitive.rpartition("|")
    frame, subjects, *objects = valency.split()
    stative, frame = frame.endswith("~"), frame.rstrip("~")
    preposition = None
    if frame.startswith("p:"):
        german, case = frame[2:].split(",")
        preposition = Preposition(german, "acc" if case == "acc" else "dat", "")
        frame = "p"
    return Verb(
        infinitive=plain,
        prefix=prefix,
        reflexive=bool(sich),
        third=third,
        preterite=preterite,
        participle=participle,
        auxiliary="s" if auxiliary == "s" else "h",
        english=_english_verb(english),
        frame=frame,
        stative=stative,
        preposition=preposition,
        subjects=tuple(subjects.split("+")),
        objects=tuple(objects[0].split("+")) if objects else (),
    )


def _adjective(forms: str, kinds: str) -> Adjective:
    german, comparative, english, english_comparative = forms.split()
    german, _, stem = german.partition("/")
    if english_comparative == "more":
        english_comparative = "more " + english
    return Adjective(
        german=german,
        stem=stem or german,
        comparative=None if comparative == "-" else comparative,
        english=english,
        english_comparative=None if english_comparative == "-" else english_comparative,
        kinds=tuple(kinds.split()),
    )


_GENDERS: dict[str, Gender] = {"m": "m", "f": "f", "n": "n"}
# English verbs that double the last letter before -ing and -ed.
DOUBLING = frozenset({"get", "put", "run", "sit", "swim", "begin", "forget", "plan", "shut", "travel"})

ALL_NOUNS = tuple(_noun(*row) for row in _rows(NOUNS))
ALL_VERBS = tuple(_verb(*row) for row in _rows(VERBS))
ALL_ADJECTIVES = tuple(_adjective(*row) for row in _rows(ADJECTIVES))
ALL_TIMES = tuple(Time(*row) for row in _rows(TIMES))
ALL_FREQUENCIES = tuple(Adverb(*pair) for pair in FREQUENCIES)
ALL_MANNERS = tuple(Adverb(*pair) for pair in MANNERS)
PERSON_NAMES = (*(ProperName(n, n, "m") for n in MEN), *(ProperName(n, n, "f") for n in WOMEN))
CITY_NAMES = tuple(ProperName(n.partition("/")[0], n.rpartition("/")[2], None) for n in CITIES)

IN, TO_CITY = Preposition("in", "dat", "in"), Preposition("nach", "dat", "to")
AT_REST = tuple(Preposition(german, "dat", english) for german, english in POSITIONS)
IN_MOTION = tuple(Preposition(german, "acc", english) for german, english in POSITIONS)

# Verbs of constructions of their own: a predicate, and "es gibt".
_ENGLISH_BE = EnglishVerb("be", "was", "been")
BE = replace(_verb("sein ist war gewesen s", "be", "be~ person"), english=_ENGLISH_BE)
THERE_IS = replace(_verb("geben gibt gab gegeben h", "be", "there~ person"), english=_ENGLISH_BE)


@cache
def nouns(kinds: tuple[str, ...]) -> tuple[Noun, ...]:
    """Nouns of any of the kinds, in the order of the table."""
    return tuple(noun for noun in ALL_NOUNS if any(kind in noun.kinds for kind in kinds))


@cache
def adjectives(noun: Noun) -> tuple[Adjective, ...]:
    """Adjectives that can describe the noun."""
    return tuple(adj for adj in ALL_ADJECTIVES if any(kind in noun.kinds for kind in adj.kinds))
