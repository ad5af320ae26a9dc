"""Sampling sentences: statements, questions, subordinate, relative, coordinate and infinitive clauses."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from demo_grammar import nominals
from demo_grammar.draw import Draw
from demo_grammar.lexicon import (
    ALL_FREQUENCIES,
    BE,
    CITY_NAMES,
    IN,
    PERSON_NAMES,
    THERE_IS,
    Noun,
    Number,
    ProperName,
    adjectives,
    nouns,
)
from demo_grammar.meaning import (
    Asked,
    Attached,
    Clause,
    Conjunction,
    Embedded,
    Gap,
    Nominal,
    NounPhrase,
    Phrase,
    Predicate,
    Pronoun,
    QuestionWord,
    Sentence,
    Tense,
    is_definite,
    is_quantity,
    person_number,
)
from demo_grammar.modifiers import PASSING_STATES
from demo_grammar.sampler import ClauseSampler, When
from demo_grammar.valency import asked_verbs, relative_verbs, verbs_of

_INFINITIVE_FRAMES = ("i", "a", "d", "da", "p", "goal", "goalcity", "city")
_PERSON = ("person",)
_PLACE_FRAMES: dict[QuestionWord, tuple[str, ...]] = {
    "wo": ("homecity", "on", "placecity", "i", "a"),
    "wohin": ("goal", "goalcity", "city", "put"),
}
_PASSING = frozenset(PASSING_STATES.split())
_BE_TENSES: dict[When, Tense] = {"past": "preterite", "present": "present", "future": "future"}
_DESCRIBED = ("person", "animal", "object", "building", "room", "text", "food", "event")


class SentenceSampler:
    """An endless source of sentences, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.draw = Draw(seed)
        self.clauses = ClauseSampler(self.draw)
        self._kinds: tuple[tuple[Callable[[], Sentence], float], ...] = (
            (self._statement, 27),
            (self._predication, 8),
            (self._existence, 4),
            (self._with_relative, 12),
            (self._yes_no, 9),
            (self._asking_who, 7),
            (self._asking_when, 6),
            (self._with_subordinate, 17),
            (self._with_object_clause, 7),
            (self._with_infinitive, 7),
            (self._coordinated, 6),
        )

    def sentence(self) -> Sentence:
        """The next sentence."""
        return self.draw.weighted(self._kinds)()

    def _statement(self) -> Sentence:
        return Sentence(self.clauses.front(self.clauses.clause(when=self.clauses.when())))

    def _predication(self) -> Sentence:
        clause = self._predicate_clause(self.clauses.when())
        if clause.predicate is not None and clause.predicate.than is None and self.draw.chance(0.25):
            return Sentence(replace(_question(clause), front="given"), question=True)
        return Sentence(clause)

    def _existence(self) -> Sentence:
        draw = self.draw
        when: When = "past" if draw.chance(0.3) else "present"
        if draw.chance(0.5):
            town = draw.pick([noun for noun in nouns(("home",)) if noun.german in ("Stadt", "Dorf", "Insel")])
            assert town.rest is not None
            where = Phrase(town.rest, nominals.noun_phrase(draw, (), noun=town, known=True))
            where = Phrase(IN, draw.pick(CITY_NAMES)) if draw.chance(0.4) else where
            kinds: tuple[str, ...] = ("building",)
        else:
            room = draw.pick([noun for noun in nouns(("room",)) if noun.german != "Garten"])
            assert room.rest is not None
            where = Phrase(room.rest, nominals.noun_phrase(draw, (), noun=room, known=True))
            kinds = ("furniture", "upright")
        there = nominals.noun_phrase(draw, kinds)
        while there.determiner in ("definite", "owner", "this", "every", "all"):
            there = nominals.noun_phrase(draw, kinds)
        tense: Tense = "preterite" if when == "past" else "present"
        clause = Clause(Pronoun(3, "sg", "n"), THERE_IS, tense=tense, accusative=there, place=where)
        if there.determiner == "indefinite" and draw.chance(0.25):
            clause = replace(clause, negated=True)
        if draw.chance(0.2):
            return Sentence(replace(clause, front="given"), question=True)
        return Sentence(replace(clause, front="place" if draw.chance(0.5) else "subject"))

    def _with_relative(self) -> Sentence:
        """A relative clause on the subject, or on an object that nothing follows in either language."""
        draw, when = self.draw, self.clauses.when()
        if draw.chance(0.5):
            verb = draw.pick(verbs_of(("a",)))
            target = self._antecedent(verb.objects)
            clause = self.clauses.clause(when=when, verb=verb, fixed={"accusative": target}, light=True)
            clause = _plain(clause)
            if draw.chance(0.25) and clause.modal is None:
                clause = replace(clause, time=self.clauses.time(when), front="time")
            return Sentence(clause)
        verb = self.clauses.verb()
        subject = self._antecedent(verb.subjects)
        return Sentence(_plain(self.clauses.clause(when=when, verb=verb, fixed={"subject": subject}, light=True)))

    def _antecedent(self, kinds: tuple[str, ...]) -> NounPhrase:
        draw = self.draw
        noun = draw.pick(nouns(kinds))
        number: Number = "pl" if noun.plural and draw.chance(0.3) else "sg"
        adjective = draw.pick(adjectives(noun)) if adjectives(noun) and draw.chance(0.12) else None
        return NounPhrase(noun, number, "definite", adjective=adjective, relative=self._relative(noun, number))

    def _relative(self, noun: Noun, number: Number) -> Clause:
        gap = Gap(noun, number)
        while True:
            slot, verb = self.draw.pick(relative_verbs(noun))
            when: When = "past" if self.draw.chance(0.5) else "present"
            clause = _plain(self.clauses.clause(when=when, verb=verb, fixed={slot: gap}, light=True))
            if clause.accusative is None or nominals.roles_are_clear(clause.subject, clause.accusative):
                return clause

    def _yes_no(self) -> Sentence:
        clause = _question(self.clauses.clause(when=self.clauses.when(), negation=0.06))
        return Sentence(replace(clause, front="given"), question=True)

    def _asking_who(self) -> Sentence:
        """Questions for a nominal: who, what, which, how many."""
        draw, when = self.draw, self.clauses.when()
        slot, verb, person = draw.pick(asked_verbs())
        asked: Nominal = Asked(person)
        noun = draw.pick(nouns(verb.objects or _PERSON))
        if slot == "accusative" and noun.plural is not None and draw.chance(0.35):
            many = draw.chance(0.45)
            number: Number = "pl" if many or draw.chance(0.3) else "sg"
            asked = NounPhrase(noun, number, "how many" if many else "which")
        while True:
            clause = self.clauses.clause(when=when, verb=verb, fixed={slot: asked}, negation=0, without=("place",))
            if slot != "accusative" or nominals.roles_are_clear(clause.subject, asked):
                return Sentence(replace(_question(clause), front=slot), question=True)

    def _asking_when(self) -> Sentence:
        """Questions for a circumstance: when, why, where, where to, how often."""
        draw, when = self.draw, self.clauses.when()
        word: QuestionWord = draw.weighted((("warum", 35), ("wann", 25), ("wo", 18), ("wohin", 12), ("wie oft", 10)))
        frames = _PLACE_FRAMES.get(word)
        verb = draw.pick(verbs_of(frames)) if frames else None
        if word in ("wann", "wie oft"):
            verb = draw.pick([verb for verb in verbs_of(_INFINITIVE_FRAMES) if not verb.stative])
        left_out = ("time", "place", "phrase") if frames else ("time", "place")
        negation = 0.25 if word == "warum" else 0
        light = word != "warum"
        clause = _plain(self.clauses.clause(when=when, verb=verb, light=light, negation=negation, without=left_out))
        return Sentence(replace(_question(clause), front="given"), question=True, word=word)

    def _with_subordinate(self) -> Sentence:
        draw = self.draw
        link: Conjunction = draw.weighted(
            (("weil", 30), ("wenn", 22), ("obwohl", 16), ("als", 14), ("während", 10), ("bevor", 8))
        )
        when = self.clauses.when()
        if link == "als":
            when = "past"
        elif (link, when) in (("wenn", "past"), ("während", "future")):
            when = "present"
        within: When = "past" if when == "past" else "present"
        events = link in ("als", "während", "bevor")
        main, side = self._simple(when, predicates=not events), self._simple(within, predicates=link != "bevor")
        if events or link == "wenn":
            main, side = _plain(main), _plain(side)
        first = draw.chance(0.4)
        main = replace(main, front="given") if first else main
        return Sentence(main, attached=Attached(link, side, first=first))

    def _with_object_clause(self) -> Sentence:
        draw = self.draw
        when: When = "past" if draw.chance(0.4) else "present"
        verb = draw.pick(verbs_of(("c", "cq")))
        main = _plain(self.clauses.clause(when=when, verb=verb, light=True, modals=False))
        within: When = "past" if when == "past" else self.clauses.when()
        kind: Literal["ob", "dass"] = "ob" if verb.frame == "cq" and draw.chance(0.5) else "dass"
        main = replace(main, embedded=Embedded(kind, self._simple(within)))
        if draw.chance(0.15):
            return Sentence(replace(_question(main), front="given"), question=True)
        return Sentence(main)

    def _with_infinitive(self) -> Sentence:
        draw = self.draw
        when = self.clauses.when()
        purpose = draw.chance(0.4)
        verb = draw.pick(verbs_of(("goal", "goalcity", "city") if purpose else ("z",)))
        who = {"subject": nominals.subject(draw, _PERSON)}
        main = _plain(self.clauses.clause(when=when, verb=verb, fixed=who, light=True, modals=purpose, negation=0.08))
        inner = draw.pick([verb for verb in verbs_of(_INFINITIVE_FRAMES[:5]) if not verb.stative])
        while "grown" not in inner.subjects and "person" not in inner.subjects:
            inner = draw.pick(verbs_of(("a",)))
        clause = self.clauses.clause(
            when="present", verb=inner, fixed={"subject": main.subject}, light=True, modals=False, negation=0
        )
        clause = replace(clause, tense="present")
        main = replace(main, embedded=Embedded("um" if purpose else "zu", clause))
        if draw.chance(0.3) and main.modal is None:
            main = replace(main, time=self.clauses.time(when), front="time")
        return Sentence(main)

    def _coordinated(self) -> Sentence:
        draw, when = self.draw, self.clauses.when()
        main = self._simple(when)
        link: Literal["und", "aber", "denn"] = draw.weighted((("und", 55), ("aber", 25), ("denn", 20)))
        within: When = "present" if when == "future" and link == "denn" else when
        if link == "und" and _is_person(main.subject) and draw.chance(0.7):
            verb = draw.pick([verb for verb in verbs_of(("i", "a")) if "person" in verb.subjects])
            fixed = {"subject": main.subject}
            second = self.clauses.clause(
                when=within, verb=verb, fixed=fixed, light=True, negation=0, modals=main.modal is not None
            )
            # One tense for both, where the verbs allow it.
            main = _plain(main)
            if main.modal is None and second.modal is None and "haben" not in (main.verb.name, verb.name):
                second = replace(second, tense=main.tense)
            return Sentence(main, attached=Attached("und", _plain(second), shared_subject=True))
        return Sentence(main, attached=Attached(link, self._simple(within)))

    def _simple(self, when: When, predicates: bool = True) -> Clause:
        """A short clause that may be part of a longer sentence."""
        if predicates and self.draw.chance(0.2):
            return self._predicate_clause(when, _PERSON, compare=False)
        return self.clauses.clause(when=when, light=self.draw.chance(0.8))

    def _predicate_clause(self, when: When, kinds: tuple[str, ...] = _DESCRIBED, compare: bool = True) -> Clause:
        draw = self.draw
        subject = nominals.subject(draw, kinds)
        if isinstance(subject, NounPhrase):
            subject = replace(subject, adjective=None)  # cold potatoes are not warm
        tense: Tense = _BE_TENSES[when]
        job = self._job(subject) if draw.chance(0.25) else None
        if job is not None:
            predicate = Predicate(job=job)
        else:
            predicate = self._adjective_predicate(subject, compare=compare and when != "future")
        clause = Clause(subject, BE, tense=tense, predicate=predicate)
        plain = predicate.degree == "plain"
        if plain and is_definite(subject) and not is_quantity(subject) and draw.chance(0.15):
            return replace(clause, negated=True)
        passing = predicate.adjective is not None and predicate.adjective.german in _PASSING
        if plain and passing and when != "future" and draw.chance(0.3):
            return replace(clause, frequency=draw.pick(ALL_FREQUENCIES[:-1]))
        return clause

    def _job(self, subject: Nominal) -> Noun | None:
        """An occupation of the right gender for a person alone; None for anybody else."""
        if person_number(subject)[1] == "pl" or isinstance(subject, Asked):
            return None
        if isinstance(subject, NounPhrase) and ("relation" not in subject.noun.kinds or subject.determiner == "no"):
            return None
        gender = nominals.natural_gender(subject)
        jobs = [noun for noun in nouns(("job",)) if noun.gender == gender]
        return self.draw.pick(jobs) if jobs else None

    def _adjective_predicate(self, subject: Nominal, compare: bool) -> Predicate:
        draw = self.draw
        noun = subject.noun if isinstance(subject, NounPhrase) else draw.pick(nouns(_PERSON))
        adjective = draw.pick(adjectives(noun))
        if not compare or adjective.comparative is None or not draw.chance(0.3):
            return Predicate(adjective)
        kinds = ("person",) if "person" in noun.kinds else noun.kinds[:1]
        other: Nominal = nominals.noun_phrase(draw, kinds, known=True, owner=subject)
        if "person" in noun.kinds and draw.chance(0.3):
            other = draw.pick(PERSON_NAMES)
        return Predicate(adjective, degree="equal" if draw.chance(0.35) else "more", than=other)


def _plain(clause: Clause) -> Clause:
    """Without "gerade" and "schon", which sound overloaded in a longer sentence."""
    return replace(clause, tense="present") if clause.tense in ("progressive", "already") else clause


def _question(clause: Clause) -> Clause:
    """Nobody asks why no judge ...: "kein" becomes "der" in questions."""
    subject = clause.subject
    if isinstance(subject, NounPhrase) and subject.determiner == "no":
        return replace(clause, subject=replace(subject, determiner="definite"))
    return clause


def _is_person(nominal: Nominal) -> bool:
    return isinstance(nominal, ProperName) or (isinstance(nominal, NounPhrase) and "person" in nominal.noun.kinds)
