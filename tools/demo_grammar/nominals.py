"""Sampling noun phrases, pronouns and names that suit their place in a clause."""

from functools import cache

from demo_grammar.draw import Draw
from demo_grammar.lexicon import PERSON_NAMES, Gender, Noun, Number, ProperName, adjectives, nouns
from demo_grammar.meaning import Asked, Determiner, Gap, Nominal, NounPhrase, Owner, Pronoun

_SUBJECT_PRONOUNS = (
    Pronoun(1, "sg"),
    Pronoun(2, "sg"),
    Pronoun(3, "sg", "m"),
    Pronoun(3, "sg", "f"),
    Pronoun(1, "pl"),
    Pronoun(2, "pl"),
    Pronoun(3, "pl"),
)
# "Ich sehe sie" could mean her or them: the third person feminine and plural are left out of the accusative.
_ACCUSATIVE_PRONOUNS = tuple(p for p in _SUBJECT_PRONOUNS if p.person != 3 or (p.gender, p.number) == ("m", "sg"))
_DATIVE_PRONOUNS = _SUBJECT_PRONOUNS
_IT = Pronoun(3, "sg", "n")

# "Ihr Buch" could be her or their book unless the subject owns it, so strangers own only these.
_FREE_OWNERS: tuple[Owner, ...] = ("1sg", "2sg", "1pl", "2pl", "3m")
# Names that take an s in the genitive.
_OWNER_NAMES = tuple(name for name in PERSON_NAMES if not name.german.endswith(("s", "x")))

_USUAL: tuple[tuple[Determiner, float], ...] = (
    ("definite", 45),
    ("indefinite", 22),
    ("owner", 12),
    ("this", 6),
    ("number", 6),
    ("many", 3),
    ("some", 3),
    ("every", 2),
    ("all", 2),
)
_RELATIVES: tuple[tuple[Determiner, float], ...] = (("owner", 70), ("definite", 20), ("indefinite", 10))
_WORKERS: tuple[tuple[Determiner, float], ...] = (
    ("definite", 58),
    ("indefinite", 20),
    ("this", 7),
    ("number", 5),
    ("many", 3),
    ("some", 3),
    ("every", 2),
    ("all", 2),
)
_MASS: tuple[tuple[Determiner, float], ...] = (("definite", 35), ("indefinite", 50), ("owner", 10), ("this", 5))
_KNOWN: tuple[tuple[Determiner, float], ...] = (("definite", 65), ("owner", 25), ("this", 10))
_ALWAYS_PLURAL = ("number", "many", "some", "all")


def subject(draw: Draw, kinds: tuple[str, ...]) -> Nominal:
    """A subject of one of the kinds."""
    if _human(kinds):
        if draw.chance(0.27):
            return draw.pick(_SUBJECT_PRONOUNS)
        if draw.chance(0.18):
            return draw.pick(PERSON_NAMES)
    if draw.chance(0.015):
        noun = draw.pick(nouns(kinds))
        return NounPhrase(noun, "sg", "no") if noun.plural else NounPhrase(noun, "sg", "definite")
    return noun_phrase(draw, kinds)


def object_of(draw: Draw, kinds: tuple[str, ...], owner: Nominal | None, case: str, pronouns: float = 0.12) -> Nominal:
    """An object of one of the kinds in a clause whose subject is `owner`."""
    noun = draw.pick(nouns(kinds))
    if draw.chance(pronouns):
        if "person" not in noun.kinds:
            if case == "acc" and "animal" not in noun.kinds:
                return _IT
        else:
            choice = draw.pick(_ACCUSATIVE_PRONOUNS if case == "acc" else _DATIVE_PRONOUNS)
            if not _overlaps(choice, owner):
                return choice
    if "person" in noun.kinds and draw.chance(0.15):
        name = draw.pick(PERSON_NAMES)
        if name is not owner:
            return name
    return noun_phrase(draw, kinds, owner=owner, noun=noun)


def noun_phrase(
    draw: Draw,
    kinds: tuple[str, ...],
    *,
    owner: Nominal | None = None,
    noun: Noun | None = None,
    known: bool = False,
) -> NounPhrase:
    """A noun phrase; `owner` is the subject of the clause, if this is not it; `known` leaves out indefinite ones."""
    noun = noun or draw.pick(nouns(kinds))
    mass, kin = noun.plural is None, "relation" in noun.kinds
    determiner = draw.weighted(_KNOWN if known else _determiners(noun))
    number: Number = "pl" if not mass and draw.chance(0.04 if known and "at" in noun.kinds else 0.28) else "sg"
    if determiner in _ALWAYS_PLURAL:
        number = "pl"
    elif determiner == "every" or "one" in noun.kinds or (determiner == "indefinite" and "person" in noun.kinds):
        number = "sg"
    adjective = None
    if draw.chance(0.12 if kin else 0.27):
        suitable = adjectives(noun)
        adjective = draw.pick(suitable) if suitable else None
    possessor: NounPhrase | ProperName | None = None
    if determiner == "definite" and _can_be_owned(noun) and draw.chance(0.6 if kin else 0.12):
        possessor = _possessor(draw)
        if isinstance(possessor, NounPhrase):
            adjective = None  # one description is enough
    return NounPhrase(
        noun,
        number,
        determiner,
        count=_count(draw) if determiner == "number" else 0,
        owner=_owner(draw, owner) if determiner == "owner" else None,
        adjective=adjective,
        possessor=possessor,
    )


def _determiners(noun: Noun) -> tuple[tuple[Determiner, float], ...]:
    if noun.plural is None:
        return _MASS
    if "relation" in noun.kinds:
        return _RELATIVES
    return _WORKERS if "person" in noun.kinds else _USUAL


def _can_be_owned(noun: Noun) -> bool:
    if noun.plural is None or "at" in noun.kinds:
        return False
    return "person" not in noun.kinds or "relation" in noun.kinds


def _count(draw: Draw) -> int:
    return draw.integer(2, 12) if draw.chance(0.5) else draw.integer(13, 99)


def _possessor(draw: Draw) -> NounPhrase | ProperName:
    if draw.chance(0.4):
        return draw.pick(_OWNER_NAMES)
    noun = draw.pick(nouns(("person",)))
    if "relation" in noun.kinds:
        return NounPhrase(noun, "sg", "owner", owner=draw.pick(_FREE_OWNERS))
    return NounPhrase(noun, "pl" if draw.chance(0.2) else "sg", "definite")


def _owner(draw: Draw, subject: Nominal | None) -> Owner:
    own = owner_of(subject) if subject is not None else None
    if own is not None and draw.chance(0.6):
        return own
    choice = draw.pick(_FREE_OWNERS)
    neuter = isinstance(subject, NounPhrase | Gap) and natural_gender(subject) == "n"
    return "1sg" if neuter and choice == "3m" else choice


def owner_of(nominal: Nominal) -> Owner | None:
    """The possessive that refers back to a subject; None where German and English disagree (das Mädchen)."""
    if isinstance(nominal, Pronoun):
        if nominal.person == 3 and nominal.number == "sg":
            return "3m" if nominal.gender == "m" else "3f" if nominal.gender == "f" else None
        return _OWN[nominal.person, nominal.number]
    if isinstance(nominal, Asked):
        return None
    if isinstance(nominal, NounPhrase | Gap):
        if "person" not in nominal.noun.kinds:
            return None
        if nominal.number == "pl":
            return "3pl"
    gender = natural_gender(nominal)
    return "3m" if gender == "m" else "3f" if gender == "f" else None


_OWN: dict[tuple[int, str], Owner] = {
    (1, "sg"): "1sg",
    (2, "sg"): "2sg",
    (1, "pl"): "1pl",
    (2, "pl"): "2pl",
    (3, "pl"): "3pl",
}


def natural_gender(nominal: Nominal) -> Gender | None:
    """Gender of a noun phrase, gap, name or pronoun."""
    if isinstance(nominal, NounPhrase | Gap):
        return nominal.noun.gender
    if isinstance(nominal, Asked):
        return None
    return nominal.gender


@cache
def _human(kinds: tuple[str, ...]) -> bool:
    return "person" in kinds or "grown" in kinds


def _overlaps(pronoun: Pronoun, subject: Nominal | None) -> bool:
    """Whether a pronoun would need to be reflexive, or would stand strangely beside the subject."""
    return isinstance(subject, Pronoun) and subject.person == pronoun.person and subject.person != 3


def shows_case(nominal: Nominal) -> bool:
    """Whether nominative and accusative differ, so that word order need not tell subject from object."""
    if isinstance(nominal, Pronoun):
        return nominal.person != 3 or (nominal.number, nominal.gender) == ("sg", "m")
    if isinstance(nominal, Asked):
        return True  # wer and wen differ, and "was" is never a subject here
    if isinstance(nominal, Gap):
        return nominal.number == "sg" and nominal.noun.gender == "m"
    if isinstance(nominal, NounPhrase):
        declined = nominal.noun.plural is not None or nominal.determiner != "indefinite"
        masculine = nominal.number == "sg" and nominal.noun.gender == "m"
        return masculine and declined and not isinstance(nominal.possessor, ProperName)
    return False


def roles_are_clear(first: Nominal, second: Nominal) -> bool:
    """Whether subject and accusative object can be told apart whatever their order: by case or by agreement."""
    if shows_case(first) or shows_case(second):
        return True
    plural = [isinstance(n, NounPhrase | Gap | Pronoun) and n.number == "pl" for n in (first, second)]
    return plural[0] != plural[1]
