"""Which verbs fit where: by frame, about a noun in a relative clause, in a question."""

from functools import cache
from typing import Literal

from demo_grammar.lexicon import ALL_VERBS, Noun, Verb

Slot = Literal["subject", "accusative", "dative", "phrase"]
_OBJECT_SLOTS: dict[str, Slot] = {
    "a": "accusative",
    "da": "accusative",
    "put": "accusative",
    "d": "dative",
    "p": "phrase",
}


@cache
def verbs_of(frames: tuple[str, ...]) -> tuple[Verb, ...]:
    """Verbs with any of the frames."""
    return tuple(verb for verb in ALL_VERBS if verb.frame in frames)


@cache
def relative_verbs(noun: Noun) -> tuple[tuple[Slot, Verb], ...]:
    """Verbs that can stand in a relative clause about a noun, with the slot that the noun fills."""
    found: list[tuple[Slot, Verb]] = []
    for verb in ALL_VERBS:
        if verb.frame in ("c", "cq", "z"):
            continue
        if any(kind in noun.kinds for kind in verb.subjects):
            found.append(("subject", verb))
        slot = _OBJECT_SLOTS.get(verb.frame)
        if slot is not None and any(kind in noun.kinds for kind in verb.objects):
            # Twice: otherwise hardly anything but subjects would be heard of.
            found += [(slot, verb), (slot, verb)]
        if verb.frame == "da" and "person" in noun.kinds:
            found.append(("dative", verb))
    return tuple(found)


@cache
def asked_verbs() -> tuple[tuple[Slot, Verb, bool], ...]:
    """Verbs of questions with the slot that is asked for and whether it is a person."""
    found: list[tuple[Slot, Verb, bool]] = []
    for verb in ALL_VERBS:
        if verb.frame in ("c", "cq", "z"):
            continue
        if "person" in verb.subjects or "grown" in verb.subjects:
            found.append(("subject", verb, True))
        if verb.frame in ("a", "da", "put"):
            found += [("accusative", verb, "person" in verb.objects)] * 2
        if verb.frame in ("d", "da"):
            found.append(("dative", verb, True))
        if verb.frame == "p" and "person" in verb.objects:
            found.append(("phrase", verb, True))
    return tuple(found)
