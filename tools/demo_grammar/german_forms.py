"""German inflection: articles, adjective endings, nouns, pronouns, verbs, numbers."""

from functools import cache

from demo_grammar.lexicon import Case, Gender, Noun, Number, Verb
from demo_grammar.meaning import Modal, Owner

_CASES = ("nom", "acc", "dat", "gen")
_GENDERS = ("m", "f", "n", "pl")


def _table(text: str) -> dict[tuple[str, str], str]:
    """Rows are cases, columns are genders and the plural; a dash is no ending."""
    rows = [line.split() for line in text.strip().splitlines()]
    return {
        (gender, case): "" if rows[i][j] == "-" else rows[i][j]
        for i, case in enumerate(_CASES)
        for j, gender in enumerate(_GENDERS)
    }


DEFINITE = _table("der die das die \n den die das die \n dem der dem den \n des der des der")
# dieser, jeder, alle, welcher
DER_ENDINGS = _table("er e es e \n en e es e \n em er em en \n es er es er")
# ein, kein, mein
EIN_ENDINGS = _table("- e - e \n en e - e \n em er em en \n es er es er")
STRONG = _table("er e es e \n en e es e \n em er em en \n en er en er")
WEAK = _table("e e e en \n en e e en \n en en en en \n en en en en")
MIXED = _table("er e es en \n en e es en \n en en en en \n en en en en")
RELATIVE = _table("der die das die \n den die das die \n dem der dem denen \n dessen deren dessen deren")

OWNERS: dict[Owner, str] = {
    "1sg": "mein",
    "2sg": "dein",
    "3m": "sein",
    "3f": "ihr",
    "1pl": "unser",
    "2pl": "euer",
    "3pl": "ihr",
}

# (person, number or gender) to nominative, accusative, dative, reflexive.
PRONOUNS = {
    (1, "sg"): ("ich", "mich", "mir", "mich"),
    (2, "sg"): ("du", "dich", "dir", "dich"),
    (3, "m"): ("er", "ihn", "ihm", "sich"),
    (3, "f"): ("sie", "sie", "ihr", "sich"),
    (3, "n"): ("es", "es", "ihm", "sich"),
    (1, "pl"): ("wir", "uns", "uns", "uns"),
    (2, "pl"): ("ihr", "euch", "euch", "euch"),
    (3, "pl"): ("sie", "sie", "ihnen", "sich"),
}

CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
    ("bei", "dem"): "beim",
}

_PERSONS = ((1, "sg"), (2, "sg"), (3, "sg"), (1, "pl"), (2, "pl"), (3, "pl"))


def _conjugation(text: str) -> dict[tuple[int, str], str]:
    return dict(zip(_PERSONS, text.split(), strict=True))


PRESENT_SEIN = _conjugation("bin bist ist sind seid sind")
PRETERITE_SEIN = _conjugation("war warst war waren wart waren")
PRESENT_HABEN = _conjugation("habe hast hat haben habt haben")
PRESENT_WERDEN = _conjugation("werde wirst wird werden werdet werden")
PRESENT_WISSEN = _conjugation("weiß weißt weiß wissen wisst wissen")
MODAL_PRESENT: dict[Modal, dict[tuple[int, str], str]] = {
    "können": _conjugation("kann kannst kann können könnt können"),
    "müssen": _conjugation("muss musst muss müssen müsst müssen"),
    "wollen": _conjugation("will willst will wollen wollt wollen"),
    "sollen": _conjugation("soll sollst soll sollen sollt sollen"),
    "dürfen": _conjugation("darf darfst darf dürfen dürft dürfen"),
    "möchten": _conjugation("möchte möchtest möchte möchten möchtet möchten"),
}
MODAL_PRETERITE: dict[Modal, str] = {
    "können": "konnte",
    "müssen": "musste",
    "wollen": "wollte",
    "dürfen": "durfte",
}


@cache
def noun_form(noun: Noun, number: Number, case: Case) -> str:
    """The noun in a number and case."""
    if number == "pl":
        plural = noun.plural or noun.german
        return plural + "n" if case == "dat" and not plural.endswith(("n", "s")) else plural
    if noun.weak:
        return noun.german if case == "nom" else str(noun.plural)
    if case != "gen" or noun.gender == "f":
        return noun.german
    if noun.german.endswith(("nis", "Bus")):
        return noun.german + "ses"
    return noun.german + ("es" if noun.german.endswith(("s", "ß", "z", "x")) or _one_syllable(noun.german) else "s")


def _one_syllable(word: str) -> bool:
    vowels = [letter in "aeiouäöüy" for letter in word.lower()]
    groups = sum(now and not before for before, now in zip([False, *vowels], vowels, strict=False))
    return groups == 1 and not vowels[-1]


def column(gender: Gender, number: Number) -> str:
    """The column of a declension table."""
    return "pl" if number == "pl" else gender


@cache
def present(verb: Verb, person: int, number: Number) -> str:
    """Present tense of the plain verb, without a separable prefix."""
    if verb.infinitive in _IRREGULAR_PRESENT:
        return _IRREGULAR_PRESENT[verb.infinitive][person, number]
    if number == "pl" and person != 2:
        return verb.infinitive
    if person == 3:
        return verb.third
    stem = _stem(verb.infinitive)
    if (person, number) == (1, "sg"):
        return stem + "e"
    if (person, number) == (2, "sg"):
        # du liest, du isst: the ending is swallowed after s, ß and z.
        return verb.third if stem.endswith(("s", "ß", "z", "x")) else verb.third[:-1] + "st"
    return stem + ("et" if _needs_e(stem) else "t")


@cache
def preterite(verb: Verb, person: int, number: Number) -> str:
    """Simple past of the plain verb, without a separable prefix."""
    if verb.infinitive == "sein":
        return PRETERITE_SEIN[person, number]
    return _past_endings(verb.preterite, person, number)


def modal_preterite(modal: Modal, person: int, number: Number) -> str:
    """Simple past of a modal verb."""
    return _past_endings(MODAL_PRETERITE[modal], person, number)


def participle(verb: Verb) -> str:
    """Past participle with its prefix: aufgestanden."""
    return verb.prefix + verb.participle


def infinitive(verb: Verb, zu: bool = False) -> str:
    """Infinitive with its prefix: aufstehen; with zu: aufzustehen, zu lesen."""
    if not zu:
        return verb.prefix + verb.infinitive
    return f"{verb.prefix}zu{verb.infinitive}" if verb.prefix else f"zu {verb.infinitive}"


@cache
def number_word(number: int) -> str:
    """A number from 2 to 99 in words."""
    if number < 13:
        return _SMALL[number]
    if number < 20:
        return _TEEN_STEMS.get(number - 10, _SMALL[number - 10]) + "zehn"
    ones, tens = number % 10, _TENS[number // 10]
    if not ones:
        return tens
    return ("ein" if ones == 1 else _SMALL[ones]) + "und" + tens


_IRREGULAR_PRESENT = {"sein": PRESENT_SEIN, "haben": PRESENT_HABEN, "wissen": PRESENT_WISSEN}
_SMALL = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"]
_TEEN_STEMS = {6: "sech", 7: "sieb"}
_TENS = ("", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")


def _stem(infinitive: str) -> str:
    return infinitive[:-1] if infinitive.endswith(("ern", "eln")) else infinitive[:-2]


def _needs_e(stem: str) -> bool:
    return stem.endswith(("t", "d")) or (stem[-1] in "nm" and stem[-2] not in "aeiouäöümnlrh")


def _past_endings(form: str, person: int, number: Number) -> str:
    if form.endswith("te"):
        return form + {(2, "sg"): "st", (1, "pl"): "n", (3, "pl"): "n", (2, "pl"): "t"}.get((person, number), "")
    ending = {(2, "sg"): "st", (1, "pl"): "en", (3, "pl"): "en", (2, "pl"): "t"}.get((person, number), "")
    return form + ending
