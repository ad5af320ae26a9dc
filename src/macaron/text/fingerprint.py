"""A digest of what a tokenizer does, the same for every version of the libraries that read it."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer


def digest(tokenizer: Tokenizer, settings: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a subword model and the settings around it.

    Only what decides the result goes in (entries, merges, splitting pattern), not the file: the file's form
    changes with the version of `tokenizers` and with the padding of the last call.
    """
    content = json.loads(tokenizer.to_str())
    model = content["model"]
    # Merges are lists of two in newer files, "a b" in older ones.
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model.get("merges", ())]
    identity = {
        "format": 1,
        "settings": dict(settings),
        "type": model["type"],
        "vocabulary": sorted(model["vocab"].items(), key=lambda item: item[1]),
        "merges": merges,
        "unknown": model.get("unk_token"),
        "word_end": model.get("end_of_word_suffix"),
        "added": [(token["id"], token["content"]) for token in content["added_tokens"]],
        "split": _patterns(content["pre_tokenizer"]),
    }
    if model.get("byte_fallback"):  # named only where it is, so that older fingerprints stay
        identity["byte_fallback"] = True
    text = json.dumps(identity, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _patterns(step: Any) -> list[str]:
    """Collect the kinds of the splitting steps, with the pattern or character at which they split."""
    if step["type"] == "Sequence":
        return [pattern for inner in step["pretokenizers"] for pattern in _patterns(inner)]
    where = step.get("pattern", step.get("delimiter", ""))
    return [step["type"], where if isinstance(where, str) else json.dumps(where, sort_keys=True)]
