"""From meaning to English: subject, verb, object; do-support; auxiliaries; relative clauses with who and which."""

from dataclasses import dataclass
from typing import Literal

from demo_grammar.english_forms import (
    CONJUNCTIONS,
    OWNERS,
    PRONOUNS,
    QUESTION_WORDS,
    article,
    be,
    finite,
    noun_form,
    number_word,
    possessive,
    progressive,
)
from demo_grammar.lexicon import EnglishVerb, Number, ProperName
from demo_grammar.meaning import (
    PAST,
    Asked,
    Attached,
    Clause,
    Embedded,
    Gap,
    Nominal,
    NounPhrase,
    Phrase,
    Predicate,
    Pronoun,
    Sentence,
    person_number,
    takes_kein,
)
from demo_grammar.spelling import sentence_text

Form = Literal["statement", "question"]
_DETERMINERS = {
    "definite": "the",
    "every": "every",
    "all": "all the",
    "many": "many",
    "some": "some",
    "no": "no",
    "which": "which",
    "how many": "how many",
}
# Modal verbs proper, with their past where it is used; the others are paraphrased.
_MODALS = {("können", False): "can", ("können", True): "could", ("sollen", False): "should"}


@dataclass(frozen=True)
class _Verbs:
    """The verbs of a clause: an auxiliary, which may be absent, what follows it, and the bare alternative.

    `bare` replaces `rest` where do-support brings an auxiliary: reads, but does ... read.
    """

    auxiliary: str
    rest: list[str]
    support: str = ""
    bare: tuple[str, ...] = ()


def english(sentence: Sentence) -> str:
    """The sentence in English."""
    main, attached = sentence.main, sentence.attached
    words: list[str] = []
    if attached is not None and attached.first:
        words = [*_subordinate(attached), ","]
    if sentence.word is not None:
        words += [*QUESTION_WORDS[sentence.word].split()]
    words += clause_words(main, "question" if sentence.question else "statement")
    if attached is not None and not attached.first:
        words += _coordinate(attached) if attached.link in ("und", "aber", "denn") else _subordinate(attached)
    return sentence_text(words, "?" if sentence.question else ".")


def clause_words(clause: Clause, form: Form = "statement") -> list[str]:
    """The words of a clause."""
    asked = next((nominal for _, nominal in clause.nominals() if _is_asked(nominal)), None)
    words: list[str] = []
    if asked is not None and asked is not clause.subject:
        words += _asked_words(asked)
    if form == "statement" and clause.front == "time" and clause.time is not None:
        words += clause.time.english.split()
    if form == "statement" and clause.front == "place" and clause.place is not None:
        words += _phrase(clause.place)
    words += _core(clause, inverted=form == "question" and asked is not clause.subject)
    words += complement_words(clause, with_front=form == "question")
    return words


def relative_words(clause: Clause) -> list[str]:
    """A relative clause with its pronoun: who, whom or which; prepositions stay where they are."""
    slot, gap = next((slot, n) for slot, n in clause.nominals() if isinstance(n, Gap))
    pronoun = "which" if "person" not in gap.noun.kinds else "who" if slot == "subject" else "whom"
    return [pronoun, *clause_words(clause)]


def nominal_words(nominal: Nominal, subject: bool, negated: bool = False) -> list[str]:
    """A nominal with its relative clause; what is asked for and the gap of a relative clause leave nothing."""
    if isinstance(nominal, Pronoun):
        key = nominal.number if nominal.person != 3 or nominal.number == "pl" else nominal.gender
        return [PRONOUNS[nominal.person, key][0 if subject else 1]]
    if isinstance(nominal, ProperName):
        return [nominal.english]
    if isinstance(nominal, Asked | Gap):
        return []
    return _noun_phrase(nominal, negated)


def _noun_phrase(phrase: NounPhrase, negated: bool) -> list[str]:
    noun = noun_form(phrase.noun, phrase.number)
    words = [phrase.adjective.english] if phrase.adjective is not None else []
    words += noun.split()
    kind = phrase.determiner
    if phrase.possessor is not None:
        owner = nominal_words(phrase.possessor, subject=False)
        words = [*owner[:-1], possessive(owner[-1]), *words]
    elif kind == "number":
        words = [number_word(phrase.count), *words]
    elif kind == "owner":
        assert phrase.owner is not None
        words = [OWNERS[phrase.owner], *words]
    elif kind == "this":
        words = ["these" if phrase.number == "pl" else "this", *words]
    elif kind == "indefinite":
        if phrase.number == "sg" and phrase.noun.plural is not None:
            words = [article(words[0]), *words]
        elif negated:
            words = ["any", *words]
    else:
        words = [*_DETERMINERS[kind].split(), *words]
    return words + (relative_words(phrase.relative) if phrase.relative is not None else [])


def _is_asked(nominal: Nominal) -> bool:
    return isinstance(nominal, Asked) or (
        isinstance(nominal, NounPhrase) and nominal.determiner in ("which", "how many")
    )


def _asked_words(nominal: Nominal) -> list[str]:
    if isinstance(nominal, Asked):
        return ["who" if nominal.person else "what"]
    return nominal_words(nominal, subject=False)


def _phrase(phrase: Phrase) -> list[str]:
    return [*phrase.preposition.english.split(), *nominal_words(phrase.nominal, subject=False)]


def _core(clause: Clause, inverted: bool) -> list[str]:
    """Subject, auxiliary, negation, frequency and verb, in the order of a statement or of a question."""
    subject = _subject(clause)
    verbs = _verbs(clause)
    not_ = ["not"] if clause.negated and clause.verb.frame != "there" else []
    adverbs = [clause.frequency.english] if clause.frequency is not None else []
    if clause.tense == "already" and not clause.negated:
        adverbs.append("already")
    auxiliary, rest = verbs.auxiliary, verbs.rest
    if not auxiliary and (inverted or not_):
        auxiliary, rest = verbs.support, list(verbs.bare)
    if inverted:
        return [auxiliary, *subject, *not_, *adverbs, *rest]
    return [*subject, *([auxiliary] if auxiliary else []), *not_, *adverbs, *rest]


def _subject(clause: Clause) -> list[str]:
    if clause.verb.frame == "there":
        return ["there"]
    if _is_asked(clause.subject):
        return _asked_words(clause.subject)
    return nominal_words(clause.subject, subject=True)


def _agreement(clause: Clause) -> tuple[int, Number]:
    if clause.verb.frame == "there" and clause.accusative is not None:
        return person_number(clause.accusative)
    return person_number(clause.subject)


def _verbs(clause: Clause) -> _Verbs:
    features = _agreement(clause)
    verb, past = clause.verb.english, clause.tense in PAST
    plain = _bare(clause)
    if clause.modal is not None:
        return _modal_verbs(clause, plain, past)
    if clause.gladly:
        return _lexical(EnglishVerb("like", "liked", "liked"), ["to", *plain], clause)
    if clause.tense == "future":
        return _Verbs("will", plain)
    if clause.tense == "already":
        has = "has" if features == (3, "sg") else "have"
        return _Verbs(has, [verb.participle, *plain[1:]])
    if clause.tense == "progressive":
        return _Verbs(be(*features, past=False), [progressive(verb.base), *plain[1:]])
    if verb.base == "be":
        return _Verbs(be(*features, past), plain[1:])
    return _lexical(verb, plain[1:], clause)


def _modal_verbs(clause: Clause, plain: list[str], past: bool) -> _Verbs:
    features = person_number(clause.subject)
    if clause.modal == "müssen":
        return _lexical(EnglishVerb("have", "had", "had"), ["to", *plain], clause)
    if clause.modal == "wollen":
        return _lexical(EnglishVerb("want", "wanted", "wanted"), ["to", *plain], clause)
    if clause.modal == "dürfen":
        return _Verbs(be(*features, past), ["allowed", "to", *plain])
    if clause.modal == "möchten":
        return _Verbs("would", ["like", "to", *plain])
    return _Verbs(_MODALS[str(clause.modal), past], plain)


def _lexical(verb: EnglishVerb, following: list[str], clause: Clause) -> _Verbs:
    person, number = person_number(clause.subject)
    past = clause.tense in PAST
    support = "did" if past else "does" if (person, number) == (3, "sg") else "do"
    inflected = finite(verb, person, number, past)
    return _Verbs("", [inflected, *following], support, (verb.base, *following))


def _bare(clause: Clause) -> list[str]:
    """The base form with what is tied to it: tail, and a particle unless a pronoun must precede it."""
    verb = clause.verb.english
    particle = [verb.particle] if verb.particle and not isinstance(clause.accusative, Pronoun) else []
    return [verb.base, *particle, *verb.tail.split()]


def complement_words(clause: Clause, with_front: bool) -> list[str]:
    """What follows the verb: objects, predicate, manner, place, time, embedded clause."""
    words: list[str] = []
    verb = clause.verb
    negated = takes_kein(clause)
    if clause.accusative is not None and not _is_asked(clause.accusative):
        if verb.frame == "there" and negated and isinstance(clause.accusative, NounPhrase):
            words += ["no", *_without_article(clause.accusative)]
        else:
            words += nominal_words(clause.accusative, subject=False, negated=negated)
    if verb.english.particle and isinstance(clause.accusative, Pronoun):
        words.append(verb.english.particle)
    if clause.dative is not None:
        words += ["to"] if verb.frame == "da" else []
        words += [] if _is_asked(clause.dative) else nominal_words(clause.dative, subject=False)
    if clause.predicate is not None:
        words += _predicate(clause.predicate)
    if clause.phrase is not None and not _is_asked(clause.phrase.nominal):
        words += _phrase(clause.phrase)
    if clause.manner is not None:
        words.append(clause.manner.english)
    if clause.place is not None and (with_front or clause.front != "place"):
        words += _phrase(clause.place)
    if clause.tense == "already" and clause.negated:
        words.append("yet")
    if clause.tense == "progressive":
        words += ["right", "now"]
    if clause.time is not None and (with_front or clause.front != "time"):
        words += clause.time.english.split()
    if clause.embedded is not None:
        words += _embedded(clause.embedded)
    return words


def _without_article(phrase: NounPhrase) -> list[str]:
    adjective = [phrase.adjective.english] if phrase.adjective is not None else []
    return [*adjective, *noun_form(phrase.noun, phrase.number).split()]


def _predicate(predicate: Predicate) -> list[str]:
    if predicate.job is not None:
        return [article(predicate.job.english), predicate.job.english]
    assert predicate.adjective is not None
    if predicate.than is None:
        return [predicate.adjective.english]
    than = nominal_words(predicate.than, subject=False)
    if predicate.degree == "equal":
        return ["as", predicate.adjective.english, "as", *than]
    return [*str(predicate.adjective.english_comparative).split(), "than", *than]


def _embedded(embedded: Embedded) -> list[str]:
    if embedded.kind in ("zu", "um"):
        opening = ["in", "order", "to"] if embedded.kind == "um" else ["to"]
        return [*opening, *_bare(embedded.clause), *complement_words(embedded.clause, with_front=True)]
    return [CONJUNCTIONS[embedded.kind], *clause_words(embedded.clause)]


def _subordinate(attached: Attached) -> list[str]:
    return [CONJUNCTIONS[attached.link], *clause_words(attached.clause)]


def _coordinate(attached: Attached) -> list[str]:
    comma = [","] if attached.link == "aber" else []
    words = clause_words(attached.clause)
    if attached.shared_subject:
        words = words[len(nominal_words(attached.clause.subject, subject=True)) :]
    return [*comma, CONJUNCTIONS[attached.link], *words]
