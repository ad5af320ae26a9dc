"""From meaning to German: verb second in main clauses, verb last in subordinate ones, case and agreement."""

from typing import Literal

from demo_grammar.german_forms import (
    CONTRACTIONS,
    DEFINITE,
    DER_ENDINGS,
    EIN_ENDINGS,
    MIXED,
    MODAL_PRESENT,
    OWNERS,
    PRESENT_HABEN,
    PRESENT_SEIN,
    PRESENT_WERDEN,
    PRONOUNS,
    RELATIVE,
    STRONG,
    WEAK,
    column,
    infinitive,
    modal_preterite,
    noun_form,
    number_word,
    participle,
    present,
    preterite,
)
from demo_grammar.lexicon import Adjective, Case, ProperName
from demo_grammar.meaning import (
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
    is_definite,
    person_number,
    takes_kein,
)
from demo_grammar.spelling import sentence_text

Order = Literal["second", "first", "last", "zu"]
_DER_WORDS = {"this": "dies", "every": "jed", "all": "all", "which": "welch"}
_PLAIN_WORDS = {"many": "viele", "some": "einige", "how many": "wie viele"}


def german(sentence: Sentence) -> str:
    """The sentence in German."""
    main, attached = sentence.main, sentence.attached
    if sentence.word is not None:
        words = [sentence.word, *clause_words(main, "first")]
    elif attached is not None and attached.first:
        words = [*_subordinate(attached), ",", *clause_words(main, "first")]
    else:
        yes_no = sentence.question and main.front == "given"
        words = clause_words(main, "first" if yes_no else "second")
    if attached is not None and not attached.first:
        words += _coordinate(attached) if attached.link in ("und", "aber", "denn") else [",", *_subordinate(attached)]
    return sentence_text(words, "?" if sentence.question else ".")


def clause_words(clause: Clause, order: Order) -> list[str]:
    """The words of a clause with its finite verb second, first or last, or as an infinitive with zu."""
    finite, bracket = verb_complex(clause)
    fields = _middle_field(clause, subject=order != "zu")
    opening: list[str] = []
    if order == "second":
        opening = next(words for slot, words, _ in fields if slot == clause.front)
        opening = opening + next(tail for slot, _, tail in fields if slot == clause.front)
        fields = [field for field in fields if field[0] != clause.front]
    fields = _reflexive_first(clause, fields)
    middle: list[str] = []
    extraposed: list[str] = []
    for i, (_, words, relative) in enumerate(fields):
        middle += words
        if relative and i == len(fields) - 1:
            extraposed = relative  # behind the verb, so that it does not tear the verb from its object
        else:
            middle += relative
    if order in ("second", "first"):
        words = [*opening, finite, *middle, *bracket]
    elif order == "zu":
        words = [*middle, infinitive(clause.verb, zu=True)]
    elif bracket and bracket[0] == clause.verb.prefix:
        words = [*middle, clause.verb.prefix + finite]
    else:
        words = [*middle, *bracket, finite]
    words += extraposed
    if clause.embedded is not None:
        words += [",", *_embedded(clause.embedded)]
    return words


def relative_words(clause: Clause) -> list[str]:
    """A relative clause between its commas: the pronoun (with its preposition) first, the verb last."""
    if clause.phrase is not None and isinstance(clause.phrase.nominal, Gap):
        gap, case = clause.phrase.nominal, clause.phrase.preposition.case
        opening = [clause.phrase.preposition.german]
    else:
        slot, gap = next((slot, n) for slot, n in clause.nominals() if isinstance(n, Gap))
        case, opening = _slot_case(slot), []
    pronoun = RELATIVE[column(gap.noun.gender, gap.number), case]
    return [",", *opening, pronoun, *clause_words(clause, "last"), ","]


def nominal_words(nominal: Nominal, case: Case, negated: bool = False) -> list[str]:
    """A nominal in a case, without its relative clause; `negated` turns ein into kein."""
    if isinstance(nominal, Pronoun):
        key = nominal.number if nominal.person != 3 or nominal.number == "pl" else nominal.gender
        return [PRONOUNS[nominal.person, key][("nom", "acc", "dat").index(case)]]
    if isinstance(nominal, ProperName):
        return [nominal.german]
    if isinstance(nominal, Asked):
        forms = {"nom": "wer", "acc": "wen", "dat": "wem"}
        return [forms[case] if nominal.person else "was"]
    if isinstance(nominal, Gap):
        return []
    return _noun_phrase(nominal, case, negated)


def adjective_form(adjective: Adjective, ending: str) -> str:
    """An adjective before its noun: müde and müde, not müdee."""
    stem = adjective.stem
    return stem + (ending[1:] if stem.endswith("e") else ending)


def _noun_phrase(phrase: NounPhrase, case: Case, negated: bool) -> list[str]:
    key = column(phrase.noun.gender, phrase.number), case
    kind = phrase.determiner
    endings = STRONG
    words: list[str] = []
    if isinstance(phrase.possessor, ProperName):
        words = [phrase.possessor.german + "s"]  # Annas rotes Auto: the name takes the place of the article
    elif kind == "definite":
        words, endings = [DEFINITE[key]], WEAK
    elif kind in _DER_WORDS:
        words, endings = [_DER_WORDS[kind] + DER_ENDINGS[key]], WEAK
    elif kind == "no" or (kind == "indefinite" and negated):
        words, endings = ["kein" + EIN_ENDINGS[key]], MIXED
    elif kind == "owner":
        words, endings = [_owner(phrase, EIN_ENDINGS[key])], MIXED
    elif kind == "indefinite" and phrase.number == "sg" and phrase.noun.plural is not None:
        words, endings = ["ein" + EIN_ENDINGS[key]], MIXED
    elif kind == "number":
        words = [number_word(phrase.count)]
    elif kind in _PLAIN_WORDS:
        words = [_PLAIN_WORDS[kind] + ("n" if case == "dat" else "")]
    if phrase.adjective is not None:
        words.append(adjective_form(phrase.adjective, endings[key]))
    words.append(noun_form(phrase.noun, phrase.number, case))
    if isinstance(phrase.possessor, NounPhrase):
        words += _noun_phrase(phrase.possessor, "gen", False)
    return words


def _owner(phrase: NounPhrase, ending: str) -> str:
    assert phrase.owner is not None
    word = OWNERS[phrase.owner]
    return "eur" + ending if word == "euer" and ending else word + ending


def _slot_case(slot: str) -> Case:
    return "nom" if slot == "subject" else "acc" if slot == "accusative" else "dat"


def _phrase(phrase: Phrase) -> list[str]:
    if isinstance(phrase.nominal, Gap):
        return []
    preposition = phrase.preposition.german
    words = nominal_words(phrase.nominal, phrase.preposition.case)
    contracted = None
    if isinstance(phrase.nominal, NounPhrase) and phrase.nominal.determiner == "definite":
        contracted = CONTRACTIONS.get((preposition, words[0]))
    return [contracted, *words[1:]] if contracted else [preposition, *words]


def verb_complex(clause: Clause) -> tuple[str, list[str]]:
    """The finite verb, and what closes the clause: prefix, participle or infinitive."""
    verb = clause.verb
    features = person_number(clause.subject)
    if clause.modal is not None:
        if clause.tense == "preterite":
            return modal_preterite(clause.modal, *features), [infinitive(verb)]
        return MODAL_PRESENT[clause.modal][features], [infinitive(verb)]
    if clause.tense in ("perfect", "already"):
        auxiliary = PRESENT_SEIN if verb.auxiliary == "s" else PRESENT_HABEN
        return auxiliary[features], [participle(verb)]
    if clause.tense == "future":
        return PRESENT_WERDEN[features], [infinitive(verb)]
    prefix = [verb.prefix] if verb.prefix else []
    return (preterite if clause.tense == "preterite" else present)(verb, *features), prefix


# A field: its slot, its words, and the relative clause that belongs to it.
Field = tuple[str, list[str], list[str]]


def _middle_field(clause: Clause, subject: bool) -> list[Field]:
    """Everything between the verbs in its unmarked order, the constituent that will be fronted included.

    Pronouns come first, then time, known objects, adverbs and negation, new objects, manner, place, complements.
    """
    fields: list[Field] = []
    if subject:
        fields.append(_nominal_field("subject", clause.subject, "nom"))
    if clause.verb.reflexive:
        fields.append(("reflexive", [_reflexive(clause.subject)], []))
    accusative, dative, kein = clause.accusative, clause.dative, takes_kein(clause)
    if isinstance(accusative, Pronoun):
        fields.append(_nominal_field("accusative", accusative, "acc"))
    if isinstance(dative, Pronoun):
        fields.append(_nominal_field("dative", dative, "dat"))
    if clause.time is not None:
        fields.append(("time", clause.time.german.split(), []))
    if dative is not None and not isinstance(dative, Pronoun):
        fields.append(_nominal_field("dative", dative, "dat"))
    known = accusative is not None and is_definite(accusative)
    if accusative is not None and known and not isinstance(accusative, Pronoun):
        fields.append(_nominal_field("accusative", accusative, "acc"))
    fields.append(("adverbs", _adverbs(clause, kein), []))
    if accusative is not None and not known:
        fields.append(_nominal_field("accusative", accusative, "acc", kein))
    if clause.manner is not None:
        fields.append(("manner", [clause.manner.german], []))
    if clause.place is not None:
        fields.append(("place", _phrase(clause.place), []))
    if clause.phrase is not None:
        fields.append(("phrase", _phrase(clause.phrase), []))
    if clause.predicate is not None:
        fields.append(("predicate", _predicate(clause.predicate, clause.negated), []))
    return [field for field in fields if field[1]]


def _nominal_field(slot: str, nominal: Nominal, case: Case, negated: bool = False) -> Field:
    relative = nominal.relative if isinstance(nominal, NounPhrase) else None
    return slot, nominal_words(nominal, case, negated), relative_words(relative) if relative else []


def _reflexive(subject: Nominal) -> str:
    person, number = person_number(subject)
    if person == 3:
        return "sich"
    return PRONOUNS[person, number][3]


def _reflexive_first(clause: Clause, fields: list[Field]) -> list[Field]:
    """A reflexive pronoun precedes a subject that is not a pronoun: heute freut sich der Mann."""
    slots = [slot for slot, _, _ in fields]
    if isinstance(clause.subject, Pronoun) or slots[:2] != ["subject", "reflexive"]:
        return fields
    return [fields[1], fields[0], *fields[2:]]


def _adverbs(clause: Clause, kein: bool) -> list[str]:
    words: list[str] = []
    if clause.frequency is not None:
        words.append(clause.frequency.german)
    if clause.tense == "progressive":
        words.append("gerade")
    if clause.tense == "already":
        words.append("noch" if clause.negated else "schon")
    if clause.gladly:
        words.append("gern")
    on_job = clause.predicate is not None and clause.predicate.job is not None
    if clause.negated and not kein and not on_job:
        words.append("nicht")
    return words


def _predicate(predicate: Predicate, negated: bool) -> list[str]:
    if predicate.job is not None:
        article = ["kein" + EIN_ENDINGS[predicate.job.gender, "nom"]] if negated else []
        return [*article, predicate.job.german]
    assert predicate.adjective is not None
    if predicate.than is None:
        return [predicate.adjective.german]
    than = nominal_words(predicate.than, "nom")
    if predicate.degree == "equal":
        return ["so", predicate.adjective.german, "wie", *than]
    return [str(predicate.adjective.comparative), "als", *than]


def _embedded(embedded: Embedded) -> list[str]:
    if embedded.kind == "zu":
        return clause_words(embedded.clause, "zu")
    if embedded.kind == "um":
        return ["um", *clause_words(embedded.clause, "zu")]
    return [embedded.kind, *clause_words(embedded.clause, "last")]


def _subordinate(attached: Attached) -> list[str]:
    return [attached.link, *clause_words(attached.clause, "last")]


def _coordinate(attached: Attached) -> list[str]:
    comma = [] if attached.link == "und" else [","]
    words = clause_words(attached.clause, "second")
    if attached.shared_subject:
        words = words[len(nominal_words(attached.clause.subject, "nom")) :]
    return [*comma, attached.link, *words]
