"""The fingerprint of a tokenizer, which config.json and prepared.json hold.

It has two parts, ``IDS+REST``: a SHA-256 of all that decides how text becomes ids, and 16 digits of one of everything
else. Earlier versions wrote the first part alone, and identities of data and runs still are the first part alone.
"""

import hashlib
import json
from typing import Any

from macaron.text.pipeline import MOSES_SETTINGS


def fingerprint(tokenizer: Any) -> str:
    """The fingerprint of a `macaron.text.tokenizer.MacaronTokenizer`.

    Only what decides the result goes in (entries, merges, splitting pattern), not the file: the file's form changes
    with the version of `tokenizers` and with the padding of the last call.
    """
    settings = {name: getattr(tokenizer, name) for name in ("kind", "pipeline", "dictionary_size")}
    if tokenizer.kind == "language":  # the same words have the same ids for encoders: data serve both
        settings["kind"] = "encoder"
    settings["segments"] = tokenizer.segments if settings["kind"] == "encoder" else None
    if tokenizer.pipeline == "moses":
        settings |= {name: getattr(tokenizer, name) for name in MOSES_SETTINGS}
    if tokenizer.show_unknown:  # named only where it is set, so that older fingerprints stay valid
        settings["show_unknown"] = True
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    model = content["model"]
    vocabulary = model.pop("vocab")
    identity = {
        "format": 1,
        "settings": settings,
        "type": model["type"],
        "vocabulary": sorted(vocabulary.items(), key=lambda item: item[1])
        if isinstance(vocabulary, dict)
        else vocabulary,
        # Merges are lists of two in newer files, "a b" in older ones.
        "merges": [pair if isinstance(pair, str) else " ".join(pair) for pair in model.pop("merges", ())],
        "unknown": model.get("unk_token"),
        "word_end": model.get("end_of_word_suffix"),
        "added": [(token["id"], token["content"]) for token in content["added_tokens"]],
        "split": patterns(content["pre_tokenizer"]),
    }
    if model.get("byte_fallback"):  # as show_unknown
        identity["byte_fallback"] = True
    ids = _digest(identity)
    rest = {name: content[name] for name in ("model", "normalizer", "pre_tokenizer", "post_processor", "decoder")}
    if odd := [each for each in content["added_tokens"] if not each["special"] or each["normalized"]]:  # likewise
        rest["added"] = odd
    if tokenizer.target_backend is not None:  # likewise
        rest["target"] = json.loads(tokenizer.target_backend.to_str())
    return f"{ids}+{_digest([ids, _said(rest)])[:16]}"


def of_ids(given: str) -> str:
    """The first part of a fingerprint: how text becomes ids."""
    return given.partition("+")[0]


def agrees(expected: str, found: str) -> bool:
    """Whether a tokenizer's fingerprint is the expected one, which may be that of an earlier version."""
    return expected in (found, of_ids(found))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode("ascii")).hexdigest()


def _said(value: Any) -> Any:
    """Nested data without settings that are off: a later version of `tokenizers` may add such."""
    if isinstance(value, dict):
        return {key: _said(item) for key, item in value.items() if item not in (None, False, "", [], {})}
    return [_said(item) for item in value] if isinstance(value, list) else value


def patterns(step: Any) -> list[str]:
    """The kinds of the splitting steps, with the pattern or character at which they split."""
    if step is None:
        return []
    if step["type"] == "Sequence":
        return [pattern for inner in step["pretokenizers"] for pattern in patterns(inner)]
    where = step.get("pattern", step.get("delimiter", ""))
    return [step["type"], where if isinstance(where, str) else json.dumps(where, sort_keys=True)]
