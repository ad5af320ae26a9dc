"""Every inflected German form of the lexicon with an English one: a dictionary for the word-by-word baseline."""

from collections.abc import Iterator

from demo_grammar.english_forms import number_word as english_number
from demo_grammar.english_forms import third_person
from demo_grammar.german import adjective_form
from demo_grammar.german_forms import (
    infinitive,
    noun_form,
    number_word,
    participle,
    present,
    preterite,
)
from demo_grammar.lexicon import (
    ALL_ADJECTIVES,
    ALL_FREQUENCIES,
    ALL_MANNERS,
    ALL_NOUNS,
    ALL_VERBS,
    BE,
    CITY_NAMES,
    PERSON_NAMES,
    Case,
    Number,
    Verb,
)

_CASES: tuple[Case, ...] = ("nom", "acc", "dat", "gen")
_PERSONS: tuple[tuple[int, Number], ...] = ((1, "sg"), (2, "sg"), (3, "sg"), (1, "pl"), (2, "pl"), (3, "pl"))


def forms() -> Iterator[tuple[str, str]]:
    """Pairs of a German form and an English one; a German form may come several times."""
    for noun in ALL_NOUNS:
        for case in _CASES:
            yield noun_form(noun, "sg", case), noun.english
            if noun.plural is not None:
                yield noun_form(noun, "pl", case), noun.english_plural
    for adjective in ALL_ADJECTIVES:
        yield adjective.german, adjective.english
        for ending in ("e", "en", "em", "er", "es"):
            yield adjective_form(adjective, ending), adjective.english
        if adjective.comparative is not None:
            yield adjective.comparative, str(adjective.english_comparative)
    for verb in (*ALL_VERBS, BE):
        yield from _verb_forms(verb)
    for number in range(2, 100):
        yield number_word(number), english_number(number)
    for name in (*PERSON_NAMES, *CITY_NAMES):
        yield name.german, name.english
        if name.gender is not None:
            yield name.german + "s", name.english + "'s"
    for adverb in (*ALL_FREQUENCIES, *ALL_MANNERS):
        yield adverb.german, adverb.english


def _verb_forms(verb: Verb) -> Iterator[tuple[str, str]]:
    """The forms of the plain verb, and the joined ones of a separable verb."""
    english = verb.english
    rest = "".join(f" {word}" for word in (english.particle, english.tail) if word)
    for person, number in _PERSONS:
        base = third_person(english.base) if (person, number) == (3, "sg") else english.base
        for form, translation in (
            (present(verb, person, number), base),
            (preterite(verb, person, number), english.past),
        ):
            yield form, translation + rest
            if verb.prefix:
                yield verb.prefix + form, translation + rest
    yield infinitive(verb), english.base + rest
    yield participle(verb), english.past + rest
    if verb.prefix:
        yield infinitive(verb, zu=True), f"to {english.base}{rest}"
