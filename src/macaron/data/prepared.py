"""A prepared folder: what ``macaron prepare`` writes and everything else reads.

prepared.json           languages, pipeline, counts, what cleaning dropped, fingerprints
tokenizer/              the tokenizer, as transformers saves it
train.de.ids ...        token stores of train, valid and test, one per language (see `macaron.data.store`)
valid.de, valid.en      the text of the valid and test pairs, for scoring; also test.de, test.en
"""

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from macaron.data.store import REMEDY, TokenStore
from macaron.errors import MacaronError
from macaron.files import read_lines
from macaron.text.pipeline import State

if TYPE_CHECKING:
    from macaron.text.tokenizer import MacaronTokenizer

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
#: What a prepared folder holds: pairs of sentences to translate, or documents (see `macaron.data.documents`).
DataKind = Literal["pairs", "text"]
KINDS: dict[DataKind, str] = {"pairs": "pairs of sentences, for translation", "text": "documents, for pre-training"}
FORMAT = 1
MANIFEST = "prepared.json"


class PairStore:
    """The two sides of a split, line for line: ``pairs[i]`` is ``(source ids, target ids)``, both with ``</s>``."""

    def __init__(self, source: TokenStore, target: TokenStore) -> None:
        if len(source) != len(target):
            raise MacaronError(f"{source.base}: {len(source)} sequences, but {target.base} has {len(target)}. {REMEDY}")
        self.source, self.target = source, target

    @classmethod
    def open(cls, folder: str | Path, split: Split = "train") -> "PairStore":
        """Open a split of a prepared folder."""
        return PreparedData.open(folder).pairs(split)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self.source[index], self.target[index]


class PreparedData:
    """A prepared folder, opened with `PreparedData.open`. Stores and tokenizer are opened when asked for."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        #: The contents of prepared.json.
        self.manifest = manifest
        self.source_lang: str = manifest["source_lang"]
        self.target_lang: str = manifest["target_lang"]
        self.pipeline: str = manifest["pipeline"]
        self.vocab_size: int = manifest["vocab_size"]
        self.tokenizer_fingerprint: str = manifest["tokenizer_fingerprint"]

    @classmethod
    def open(cls, folder: str | Path) -> "PreparedData":
        """Open a prepared folder; its stores are checked against prepared.json when they are opened."""
        folder = Path(folder)
        return cls(folder, read_manifest(folder, "pairs"))

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return self.source_lang, self.target_lang

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits there are: ``train``, and ``valid`` and ``test`` where they were given."""
        return tuple(split for split in SPLITS if split in self.manifest["splits"])

    @cached_property
    def tokenizer(self) -> "MacaronTokenizer":
        """The tokenizer, verified by its fingerprint."""
        return load_tokenizer(self.folder, self.tokenizer_fingerprint)

    def pairs(self, split: Split) -> PairStore:
        """Open the token stores of a split."""
        self._check(split)
        expected = self.manifest["splits"][split]
        sides = {}
        for side, language in (("source", self.source_lang), ("target", self.target_lang)):
            store = TokenStore(self.folder / f"{split}.{language}")
            there = (len(store), store.tokens, store.vocab_size)
            if there != (expected["pairs"], expected[f"{side}_tokens"], self.vocab_size):
                raise MacaronError(
                    f"{store.base}: a foreign token store: {there[0]:,} sequences of {there[1]:,} tokens, where "
                    f"{MANIFEST} has {expected['pairs']:,} of {expected[f'{side}_tokens']:,}. {REMEDY}"
                )
            sides[side] = store
        return PairStore(sides["source"], sides["target"])

    def text(self, split: Split, language: str) -> list[str]:
        """The lines of a split as they were given (see `text_state`), for scoring; not kept for ``train``."""
        self._check(split)
        if language not in self.languages:
            raise MacaronError(f"{self.folder}: there is no text in {language!r}: choose {' or '.join(self.languages)}")
        if split == "train":
            raise MacaronError(f"{self.folder}: the text of the training pairs is not kept; decode their tokens")
        lines = list(read_lines(self.folder / f"{split}.{language}"))
        if len(lines) != self.manifest["splits"][split]["pairs"]:
            raise MacaronError(
                f"{self.folder / f'{split}.{language}'}: {len(lines):,} lines instead of "
                f"{self.manifest['splits'][split]['pairs']:,}. {REMEDY}"
            )
        return lines

    def text_state(self, split: Split) -> State:
        """What the text of a split is: ``raw`` (plain) or ``moses`` (it was given tokenised, and kept so)."""
        self._check(split)
        return cast(State, self.manifest["splits"][split]["text_state"])

    def _check(self, split: str) -> None:
        if split not in self.splits:
            raise MacaronError(f"{self.folder}: no split {split!r}; there is {', '.join(self.splits)}")


def load_tokenizer(folder: Path, fingerprint: str) -> "MacaronTokenizer":
    """Read the tokenizer of a prepared folder and verify it."""
    from macaron.text.tokenizer import MacaronTokenizer

    place = folder / "tokenizer"
    if not (place / "tokenizer.json").is_file():
        raise MacaronError(f"{place}: there is no tokenizer here. {REMEDY}")
    try:
        tokenizer = MacaronTokenizer.from_pretrained(place)
    except Exception as error:  # a damaged file makes transformers and tokenizers raise nearly anything
        raise MacaronError(f"{place}: the tokenizer cannot be read ({error}). {REMEDY}") from error
    if tokenizer.fingerprint() != fingerprint:
        raise MacaronError(f"{place}: not the tokenizer that these tokens were made with. {REMEDY}")
    return tokenizer


def data_kind(folder: str | Path) -> DataKind:
    """What a prepared folder holds."""
    return cast(DataKind, read_manifest(Path(folder)).get("kind", "pairs"))


def read_manifest(folder: Path, kind: DataKind | None = None) -> dict[str, Any]:
    """Read prepared.json, or say why this is no prepared folder, or not one of the wanted kind."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise MacaronError(f"{path}: no such file. Is {folder} a folder that 'macaron prepare' wrote?") from None
    except ValueError as error:
        raise MacaronError(f"{path}: damaged ({error}). {REMEDY}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else None
        raise MacaronError(f"{path}: format {found!r}, this version reads {FORMAT}. {REMEDY}")
    held = manifest.get("kind", "pairs")
    if held not in KINDS:
        raise MacaronError(f"{path}: holds {held!r}, which this version does not know. {REMEDY}")
    if kind is not None and held != kind:
        raise MacaronError(f"{folder} holds {KINDS[held]}; wanted are {KINDS[kind]}. Give another folder.")
    return manifest
