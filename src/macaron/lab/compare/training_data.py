"""Whether runs were trained on the same text.

The checkpoints of a run know its tokenizer and the lengths of all sentences. The words themselves are in the folder of
the data, and are looked at where that is still there.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from macaron.data.prepared import DataKind, PreparedData, PreparedText
from macaron.data.store import TokenStore
from macaron.errors import MacaronError
from macaron.lab.compare.runs import Run


class Digests(NamedTuple):
    """Of the training data of a folder: what checkpoints call ``training data``, and one of every token."""

    lengths: str
    tokens: str


def training_digest(data: PreparedData) -> str:
    """What a run's checkpoints call ``training data``: a digest of the lengths of all sentences."""
    pairs = data.pairs("train")
    return _lengths([pairs.source, pairs.target])


def tokens_differ(first: Run, second: Run) -> tuple[str, str] | None:
    """Digests of the tokens that two runs were trained on, where they are known and differ."""
    if _place(first) == _place(second):
        return None
    ours, theirs = _tokens(first), _tokens(second)
    return None if ours is None or theirs is None or ours == theirs else (ours, theirs)


def unseen(runs: Sequence[Run]) -> list[Run]:
    """Runs whose checkpoints are all that is known of their data, where others had them from another folder."""
    if len({_place(run) for run in runs}) == 1:
        return []
    return [run for run in runs if run.identity is not None and _tokens(run) is None]


def _place(run: Run) -> Path:
    return run.recipe.data.resolve()


def _tokens(run: Run) -> str | None:
    """None where the folder is gone, or has other data by now than the run was trained on."""
    found = _digests(_place(run), run.kind)
    if found is None or run.identity is None or found.lengths != run.identity.get("training data"):
        return None
    return found.tokens


@cache
def _digests(folder: Path, kind: DataKind) -> Digests | None:
    try:
        if kind == "text":
            text = PreparedText.open(folder)
            stores, documents = [text.sentences("train")], text.documents("train").tobytes()
        else:
            pairs = PreparedData.open(folder).pairs("train")
            stores, documents = [pairs.source, pairs.target], b""
        digest = hashlib.sha256()
        for store in stores:
            digest.update(np.ascontiguousarray(store.ids).view(np.uint8).data)
        return Digests(_lengths(stores, documents), digest.hexdigest()[:16])
    except (MacaronError, OSError):
        return None


def _lengths(stores: Sequence[TokenStore], documents: bytes = b"") -> str:
    digest = hashlib.sha256()
    for store in stores:
        digest.update(store.lengths.tobytes())
    digest.update(documents)
    return digest.hexdigest()[:16]
