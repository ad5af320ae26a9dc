"""Sampling clauses and sentences: which verb, with what, when, and in which construction."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Literal

from demo_grammar import nominals
from demo_grammar.draw import Draw
from demo_grammar.english_forms import number_word as english_number
from demo_grammar.german_forms import number_word as german_number
from demo_grammar.lexicon import (
    ALL_FREQUENCIES,
    ALL_MANNERS,
    ALL_TIMES,
    AT_REST,
    CITY_NAMES,
    IN,
    IN_MOTION,
    TO_CITY,
    Adverb,
    ProperName,
    Time,
    Verb,
    nouns,
)
from demo_grammar.meaning import (
    Clause,
    Front,
    Modal,
    Nominal,
    NounPhrase,
    Phrase,
    Pronoun,
    Tense,
    is_definite,
    is_quantity,
    person_number,
)
from demo_grammar.modifiers import PERCEPTION_VERBS, PLACELESS_VERBS, PLEASANT_VERBS, UNITS
from demo_grammar.valency import verbs_of

When = Literal["past", "present", "future"]

_TENSES: dict[When, tuple[tuple[Tense, float], ...]] = {
    "past": (("preterite", 40), ("perfect", 60)),
    "present": (("present", 75), ("progressive", 13), ("already", 12)),
    "future": (("future", 100),),
}
_MODALS: tuple[tuple[Modal, float], ...] = (
    ("können", 30),
    ("müssen", 25),
    ("wollen", 20),
    ("sollen", 10),
    ("dürfen", 8),
    ("möchten", 12),
)
_PAST_MODALS: tuple[Modal, ...] = ("können", "müssen", "wollen", "dürfen")
_PLEASANT = frozenset(PLEASANT_VERBS.split())
_PERCEIVED = frozenset(PERCEPTION_VERBS.split())
_NOWHERE = frozenset(PLACELESS_VERBS.split())
_QUIET_MANNERS = tuple(adverb for adverb in ALL_MANNERS if adverb.german in ("leise", "allein", "sofort"))
_BRISK_MANNERS = tuple(adverb for adverb in ALL_MANNERS if adverb.german not in ("zusammen", "leise"))
_TOGETHER = next(adverb for adverb in ALL_MANNERS if adverb.german == "zusammen")

_FRAME_WEIGHTS: tuple[tuple[tuple[str, ...], float], ...] = (
    (("i",), 17),
    (("a",), 44),
    (("d",), 7),
    (("da",), 11),
    (("p",), 9),
    (("goal", "goalcity", "city"), 7),
    (("homecity", "placecity", "on"), 5),
    (("put",), 4),
)


class ClauseSampler:
    """Samples clauses without attachments; sentences are built from them in `demo_grammar.sentences`."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw

    def verb(self) -> Verb:
        """A verb whose complements are nominal."""
        return self.draw.pick(verbs_of(self.draw.weighted(_FRAME_WEIGHTS)))

    def when(self) -> When:
        """Past, present or future."""
        return self.draw.weighted((("past", 42), ("present", 46), ("future", 12)))

    def clause(
        self,
        *,
        when: When,
        verb: Verb | None = None,
        fixed: Mapping[str, Nominal] | None = None,
        light: bool = False,
        modals: bool = True,
        negation: float = 0.15,
        without: tuple[str, ...] = (),
    ) -> Clause:
        """A clause; `fixed` presets arguments, `light` keeps it short, `without` leaves parts out."""
        draw = self.draw
        verb = verb or self.verb()
        fixed = fixed or {}
        subject = fixed.get("subject") or nominals.subject(draw, verb.subjects)
        clause = Clause(subject, verb, tense=self._tense(verb, subject, when))
        clause = self._modal(clause, when) if modals and draw.chance(0.2) else clause
        clause = self._arguments(clause, fixed, without)
        if not light:
            clause = self._circumstances(clause, when, without)
        if draw.chance(negation) and self._can_be_negated(clause):
            clause = replace(clause, negated=True, manner=None)
        return clause

    def time(self, when: When) -> Time:
        """A time expression that suits the tense."""
        draw = self.draw
        letter = {"past": "p", "present": "h", "future": "f"}[when]
        if draw.chance(0.15):
            hour = draw.integer(2, 12)
            return Time(f"um {german_number(hour)} Uhr", f"at {english_number(hour)} o'clock", "phf")
        if when != "present" and draw.chance(0.18):
            count, (german, english) = draw.integer(2, 12), draw.pick(UNITS)
            if when == "past":
                return Time(f"vor {german_number(count)} {german}", f"{english_number(count)} {english} ago", "p")
            return Time(f"in {german_number(count)} {german}", f"in {english_number(count)} {english}", "f")
        return draw.pick(_times(letter))

    def front(self, clause: Clause) -> Clause:
        """Choose what opens a main clause: the subject, or something known that is thereby stressed."""
        draw = self.draw
        options: list[tuple[Front, float]] = [("subject", 60)]
        if clause.time is not None:
            options.append(("time", 50))
        if clause.place is not None:
            options.append(("place", 15))
        accusative, phrase = clause.accusative, clause.phrase
        if _is_topic(accusative) and accusative and nominals.roles_are_clear(clause.subject, accusative):
            options.append(("accusative", 14))
        if _is_topic(clause.dative):
            options.append(("dative", 14))
        if phrase is not None and _is_topic(phrase.nominal):
            options.append(("phrase", 8))
        return replace(clause, front=draw.weighted(options))

    def place(self) -> Phrase:
        """A place of rest."""
        draw = self.draw
        if draw.chance(0.2):
            return Phrase(IN, draw.pick(CITY_NAMES))
        noun = draw.pick(nouns(("at",)))
        assert noun.rest is not None
        return Phrase(noun.rest, nominals.noun_phrase(draw, (), noun=noun, known=True))

    def _tense(self, verb: Verb, subject: Nominal, when: When) -> Tense:
        tense = self.draw.weighted(_TENSES[when])
        if verb.infinitive == "haben" and tense == "perfect":
            return "preterite"
        if tense == "already" and verb.frame not in ("i", "a", "d", "da", "put"):
            return "present"
        if verb.stative and tense in ("progressive", "already"):
            return "present"
        if tense == "preterite" and isinstance(subject, Pronoun) and subject.person == 2:
            return "perfect"  # du gingst is what nobody says
        return tense

    def _modal(self, clause: Clause, when: When) -> Clause:
        subject, verb = clause.subject, clause.verb
        alive = not isinstance(subject, NounPhrase) or {"person", "animal"} & set(subject.noun.kinds)
        if not alive or when == "future" or verb.frame in ("be", "there"):
            return clause
        past = when == "past"
        modal = self.draw.pick(_PAST_MODALS) if past else self.draw.weighted(_MODALS)
        if verb.stative and verb.name not in _PERCEIVED:
            return clause
        return replace(clause, modal="können" if verb.stative else modal, tense="preterite" if past else "present")

    def _arguments(self, clause: Clause, fixed: Mapping[str, Nominal], without: tuple[str, ...]) -> Clause:
        draw, verb, subject = self.draw, clause.verb, clause.subject
        accusative, dative, phrase = fixed.get("accusative"), fixed.get("dative"), None
        if verb.frame in ("a", "da", "put") and accusative is None:
            accusative = nominals.object_of(draw, verb.objects, subject, "acc", 0.06 if dative else 0.12)
        if verb.frame == "d" and dative is None:
            dative = nominals.object_of(draw, verb.objects, subject, "dat")
        if verb.frame == "da" and dative is None:
            dative = nominals.object_of(draw, ("person",), subject, "dat", 0.3)
        if "phrase" not in without:
            phrase = self._phrase(verb, subject, fixed.get("phrase"))
        return replace(clause, accusative=accusative, dative=dative, phrase=phrase)

    def _phrase(self, verb: Verb, subject: Nominal, fixed: Nominal | None) -> Phrase | None:
        draw, frame = self.draw, verb.frame
        if frame == "p":
            assert verb.preposition is not None
            case = verb.preposition.case
            return Phrase(verb.preposition, fixed or nominals.object_of(draw, verb.objects, subject, case, 0.05))
        if frame == "city" or (frame in ("homecity", "placecity", "goalcity") and draw.chance(0.4)):
            return Phrase(TO_CITY if frame in ("city", "goalcity") else IN, draw.pick(CITY_NAMES))
        if frame in ("goal", "goalcity"):
            noun = draw.pick(nouns(("at",)))
            assert noun.direction is not None
            return Phrase(noun.direction, nominals.noun_phrase(draw, (), noun=noun, known=True, owner=subject))
        if frame == "placecity":
            return self.place()
        if frame == "homecity":
            noun = draw.pick(nouns(("home",)))
            assert noun.rest is not None
            return Phrase(noun.rest, nominals.noun_phrase(draw, (), noun=noun, known=True, owner=subject))
        if frame in ("on", "put"):
            return self._surface(verb)
        return None

    def _surface(self, verb: Verb) -> Phrase:
        positions = IN_MOTION if verb.frame == "put" else AT_REST
        sits = verb.infinitive == "sitzen"
        # The first is "auf", by far the commonest.
        position = positions[0] if sits or self.draw.chance(0.6) else self.draw.pick(positions)
        return Phrase(position, nominals.noun_phrase(self.draw, ("seat",) if sits else ("surface",), known=True))

    def _circumstances(self, clause: Clause, when: When, without: tuple[str, ...]) -> Clause:
        draw, verb = self.draw, clause.verb
        if verb.frame == "homecity" and when == "present":
            return clause
        ongoing = clause.tense in ("progressive", "already")
        if not ongoing and "time" not in without and draw.chance(0.38):
            clause = replace(clause, time=self.time(when))
        elif not ongoing and when != "future" and clause.modal is None and draw.chance(0.13):
            negative = isinstance(clause.subject, NounPhrase) and clause.subject.determiner == "no"
            clause = clause if negative else replace(clause, frequency=draw.pick(ALL_FREQUENCIES))
        active = verb.frame in ("i", "a") and not verb.stative
        simple = clause.tense in ("present", "preterite") and clause.modal is None and clause.frequency is None
        if simple and verb.name in _PLEASANT and draw.chance(0.35):
            return replace(clause, gladly=True, time=None)
        if "place" not in without and active and verb.name not in _NOWHERE and draw.chance(0.14):
            target = clause.accusative
            if not (isinstance(target, NounPhrase) and "at" in target.noun.kinds):
                clause = replace(clause, place=self.place())
        elif active and clause.frequency is None and draw.chance(0.12):
            clause = replace(clause, manner=self._manner(clause))
        return clause

    def _manner(self, clause: Clause) -> Adverb:
        if person_number(clause.subject)[1] == "pl" and self.draw.chance(0.4):
            return _TOGETHER
        return self.draw.pick(_QUIET_MANNERS if clause.verb.frame == "i" else _BRISK_MANNERS)

    def _can_be_negated(self, clause: Clause) -> bool:
        """Negation stays away from quantities (not many ...) and from adverbs that it would not go with."""
        if clause.frequency is not None or clause.gladly or clause.place is not None:
            return False
        if not is_definite(clause.subject) or is_quantity(clause.subject):
            return False
        others = [nominal for slot, nominal in clause.nominals() if slot not in ("subject", "accusative")]
        if any(not is_definite(nominal) or is_quantity(nominal) for nominal in others):
            return False
        accusative = clause.accusative
        if isinstance(accusative, NounPhrase) and accusative.determiner == "indefinite":
            return True
        return accusative is None or (is_definite(accusative) and not is_quantity(accusative))


def _is_topic(nominal: Nominal | None) -> bool:
    """Whether the nominal is known and plain enough to open a sentence without being its subject."""
    if not isinstance(nominal, NounPhrase):
        return False
    return nominal.determiner in ("definite", "this", "owner") and not isinstance(nominal.possessor, ProperName)


@cache
def _times(letter: str) -> tuple[Time, ...]:
    return tuple(time for time in ALL_TIMES if letter in time.when)
