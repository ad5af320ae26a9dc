"""Combinations that training never shows, though it shows each of their parts.

The `novel` split of the demo corpus asks whether a model has learned the grammar or the sentences. Three rules
decide, and every sentence that breaks one of them is kept out of training, validation and test:

- an adjective and a noun are held apart when their places in the tables satisfy (i + 3 j) mod 16 = 0;
- the verbs of `VERBS` never appear in the construction they are listed under;
- the nouns of `NOUNS` never appear in the case they are listed under.

Only combinations are held out, not forms: the forms that the construction needs occur elsewhere. An infinitive that
is held apart from modal verbs occurs after "wird". The verbs that are held apart from the perfect are those whose
participle is also a form of the present ("er bestellt", "er hat bestellt").
"""

from collections.abc import Iterator
from typing import Literal

from demo_grammar.lexicon import ALL_ADJECTIVES, ALL_NOUNS, Case
from demo_grammar.meaning import Clause, Nominal, NounPhrase, Sentence

Kind = Literal["adjective", "verb", "case"]
Construction = Literal[
    "relative", "subordinate", "infinitive", "question", "modal", "perfect", "future", "negated", "fronted object"
]
# What is combined: (adjective, noun), (verb, construction) or (noun, case).
Combination = tuple[Kind, str, str]

VERBS: dict[Construction, tuple[str, ...]] = {
    "relative": ("lesen", "suchen", "helfen", "besuchen", "füttern"),
    "subordinate": ("kochen", "abholen", "zeigen", "schlafen"),
    "infinitive": ("schreiben", "danken", "beobachten"),
    "question": ("bringen", "einladen", "waschen", "wohnen"),
    "modal": ("reparieren", "anrufen", "tanzen", "verkaufen"),
    "perfect": ("bestellen", "bezahlen", "benutzen", "erklären"),
    "future": ("träumen", "singen", "treffen"),
    "negated": ("trinken", "warten", "lieben"),
    "fronted object": ("kaufen", "sehen", "geben"),
}
NOUNS: dict[Case, tuple[str, ...]] = {
    "nom": ("Katze", "Onkel"),
    "acc": ("Hund", "Tochter", "Lampe"),
    "dat": ("Arzt", "Schwester", "Tisch", "Lehrerin", "Küche"),
    "gen": ("Mutter", "Student", "Nachbarin"),
}

_HELD_VERBS = frozenset((name, construction) for construction, names in VERBS.items() for name in names)
_HELD_NOUNS = frozenset((name, case) for case, names in NOUNS.items() for name in names)
_ADJECTIVE_PLACES = {adjective.german: place for place, adjective in enumerate(ALL_ADJECTIVES)}
_NOUN_PLACES = {noun.german: place for place, noun in enumerate(ALL_NOUNS)}


def is_held_out(combination: Combination) -> bool:
    """Whether training must not show the combination."""
    kind, first, second = combination
    if kind == "adjective":
        return (_ADJECTIVE_PLACES[first] + 3 * _NOUN_PLACES[second]) % 16 == 0
    return (first, second) in (_HELD_VERBS if kind == "verb" else _HELD_NOUNS)


def held_out(sentence: Sentence) -> list[Combination]:
    """The combinations of a sentence that training must not show; empty for a sentence that it may."""
    return [combination for combination in combinations(sentence) if is_held_out(combination)]


def combinations(sentence: Sentence) -> Iterator[Combination]:
    """All combinations of adjective and noun, verb and construction, noun and case in a sentence."""
    yield from _of_clause(sentence.main, ("question",) if sentence.question else ())
    if sentence.attached is not None:
        coordinate = sentence.attached.link in ("und", "aber", "denn")
        yield from _of_clause(sentence.attached.clause, () if coordinate else ("subordinate",))


def _of_clause(clause: Clause, position: tuple[Construction, ...]) -> Iterator[Combination]:
    for construction in (*position, *_constructions(clause)):
        yield "verb", clause.verb.name, construction
    for slot, nominal in clause.nominals():
        # In an infinitive the subject is understood, not said.
        if not (slot == "subject" and "infinitive" in position):
            yield from _of_nominal(nominal, _case(clause, slot))
    if clause.predicate is not None and clause.predicate.job is not None:
        yield "case", clause.predicate.job.german, "nom"
    if clause.embedded is not None:
        infinitive = clause.embedded.kind in ("zu", "um")
        yield from _of_clause(clause.embedded.clause, ("infinitive",) if infinitive else ("subordinate",))


def _constructions(clause: Clause) -> Iterator[Construction]:
    if clause.modal is not None:
        yield "modal"
    elif clause.tense in ("perfect", "already"):  # hat bestellt, hat schon bestellt
        yield "perfect"
    elif clause.tense == "future":
        yield "future"
    subject = clause.subject
    if clause.negated or (isinstance(subject, NounPhrase) and subject.determiner == "no"):  # nicht, kein
        yield "negated"
    if clause.front in ("accusative", "dative"):
        yield "fronted object"


def _case(clause: Clause, slot: str) -> Case:
    if slot in ("subject", "than"):
        return "nom"
    phrase = clause.phrase if slot == "phrase" else clause.place if slot == "place" else None
    if phrase is not None:
        return phrase.preposition.case
    return "acc" if slot == "accusative" else "dat"


def _of_nominal(nominal: Nominal, case: Case) -> Iterator[Combination]:
    if not isinstance(nominal, NounPhrase):
        return
    yield "case", nominal.noun.german, case
    if nominal.adjective is not None:
        yield "adjective", nominal.adjective.german, nominal.noun.german
    if nominal.possessor is not None:
        yield from _of_nominal(nominal.possessor, "gen")
    if nominal.relative is not None:
        yield from _of_clause(nominal.relative, ("relative",))
