"""What a sentence says, free of either language: the values that are sampled and then realised twice."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from demo_grammar.lexicon import (
    Adjective,
    Adverb,
    Gender,
    Noun,
    Number,
    Preposition,
    ProperName,
    Time,
    Verb,
)

Determiner = Literal[
    "definite",  # der, the
    "indefinite",  # ein, a; plural and mass nouns bare
    "this",  # dieser, this or these
    "every",  # jeder, every
    "all",  # alle, all
    "many",  # viele, many
    "some",  # einige, some
    "no",  # kein, no: of subjects; a negated clause makes its own
    "number",  # zwei ..., two ...
    "owner",  # mein ..., my ...
    "which",  # welcher, which
    "how many",  # wie viele, how many
]
Tense = Literal[
    "present",
    "progressive",  # liest gerade, is reading ... right now
    "preterite",  # las, read
    "perfect",  # hat gelesen, read
    "already",  # hat schon gelesen, has already read; negated: noch nicht, not yet
    "future",  # wird lesen, will read
]
Modal = Literal["können", "müssen", "wollen", "sollen", "dürfen", "möchten"]
Owner = Literal["1sg", "2sg", "3m", "3f", "1pl", "2pl", "3pl"]
# The constituent that opens a main clause; "given" means that something outside the clause does.
Front = Literal["subject", "time", "place", "accusative", "dative", "phrase", "given"]
Conjunction = Literal["weil", "wenn", "obwohl", "als", "während", "bevor", "dass", "ob"]
QuestionWord = Literal["warum", "wann", "wo", "wohin", "wie oft"]

PAST: tuple[Tense, ...] = ("preterite", "perfect")


@dataclass(frozen=True)
class Pronoun:
    """A personal pronoun; the gender matters in the third person singular alone."""

    person: Literal[1, 2, 3]
    number: Number
    gender: Gender = "m"


@dataclass(frozen=True)
class NounPhrase:
    """A noun with what surrounds it. `count` belongs to "number", `owner` to "owner"."""

    noun: Noun
    number: Number
    determiner: Determiner
    count: int = 0
    owner: Owner | None = None
    adjective: Adjective | None = None
    possessor: "NounPhrase | ProperName | None" = None
    relative: "Clause | None" = None


@dataclass(frozen=True)
class Gap:
    """The place in a relative clause that its antecedent fills."""

    noun: Noun
    number: Number


@dataclass(frozen=True)
class Asked:
    """What a question asks for: who (a person) or what."""

    person: bool


Nominal: TypeAlias = NounPhrase | Pronoun | ProperName | Gap | Asked


@dataclass(frozen=True)
class Phrase:
    """A prepositional phrase."""

    preposition: Preposition
    nominal: Nominal


@dataclass(frozen=True)
class Predicate:
    """What is said with "sein": an adjective, perhaps compared, or an occupation."""

    adjective: Adjective | None = None
    job: Noun | None = None
    degree: Literal["plain", "more", "equal"] = "plain"
    than: Nominal | None = None


@dataclass(frozen=True)
class Embedded:
    """A clause inside another one: an object clause, or an infinitive with zu or um ... zu."""

    kind: Literal["dass", "ob", "zu", "um"]
    clause: "Clause"


@dataclass(frozen=True)
class Clause:
    """A verb with its arguments and circumstances."""

    subject: Nominal
    verb: Verb
    tense: Tense = "present"
    modal: Modal | None = None
    accusative: Nominal | None = None
    dative: Nominal | None = None
    phrase: Phrase | None = None
    predicate: Predicate | None = None
    negated: bool = False
    gladly: bool = False
    time: Time | None = None
    frequency: Adverb | None = None
    manner: Adverb | None = None
    place: Phrase | None = None
    embedded: Embedded | None = None
    front: Front = "subject"

    def nominals(self) -> Iterator[tuple[str, Nominal]]:
        """The arguments with the slots they fill."""
        if self.subject is not None:
            yield "subject", self.subject
        if self.accusative is not None:
            yield "accusative", self.accusative
        if self.dative is not None:
            yield "dative", self.dative
        if self.phrase is not None:
            yield "phrase", self.phrase.nominal
        if self.place is not None:
            yield "place", self.place.nominal
        if self.predicate is not None and self.predicate.than is not None:
            yield "than", self.predicate.than


@dataclass(frozen=True)
class Attached:
    """A second clause: subordinate (with a conjunction, before or after the main one) or coordinate."""

    link: Conjunction | Literal["und", "aber", "denn"]
    clause: Clause
    first: bool = False
    shared_subject: bool = False


@dataclass(frozen=True)
class Sentence:
    """A statement or question. A question asks yes or no, for a nominal (`Asked`), or by `word`."""

    main: Clause
    question: bool = False
    word: QuestionWord | None = None
    attached: Attached | None = None


def person_number(nominal: Nominal) -> tuple[int, Number]:
    """Agreement features of a subject."""
    if isinstance(nominal, Pronoun):
        return nominal.person, nominal.number
    if isinstance(nominal, NounPhrase | Gap):
        return 3, nominal.number
    return 3, "sg"


def is_definite(nominal: Nominal | None) -> bool:
    """Whether the nominal is known to the hearer; indefinite objects stand later in German, and take kein."""
    if isinstance(nominal, NounPhrase):
        return nominal.determiner in ("definite", "this", "owner", "every", "all", "which")
    return nominal is not None


def is_quantity(nominal: Nominal) -> bool:
    """Whether the nominal counts over things, so that a negation beside it would have two readings."""
    return isinstance(nominal, NounPhrase) and nominal.determiner in ("every", "all", "which")


def takes_kein(clause: Clause) -> bool:
    """Whether the negation of the clause shows on its object (kein Buch) rather than as nicht."""
    nominal = clause.accusative
    return clause.negated and isinstance(nominal, NounPhrase) and nominal.determiner == "indefinite"
