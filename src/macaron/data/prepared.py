"""A prepared folder: what ``macaron prepare`` writes and everything else reads.

prepared.json           kind, languages, pipeline, counts, what cleaning dropped, fingerprints
tokenizer/              tokenizer.json and tokenizer_config.json
train.de.ids ...        token stores of train, valid and test (see `macaron.data.store`), one per language; of
                        documents, for pre-training: train.ids ..., one sequence per sentence, and train.documents
valid.de, valid.en      the text of the valid and test pairs, for scoring; also test.de, test.en
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NotRequired, Self, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from macaron.data.batching import CorpusPart
from macaron.data.store import OFFSET, REMEDY, TokenStore, check_growth, map_file
from macaron.errors import MacaronError, require, shown
from macaron.files import read_lines
from macaron.json_files import Count, Record, conforming, read_json
from macaron.limits import Between
from macaron.seal import check, digest, recorded
from macaron.settings import OTHERS
from macaron.text.fingerprint import agrees
from macaron.text.pipeline import PipelineName, State
from macaron.text.tokenizer import MacaronTokenizer

#: What a prepared folder holds.
DataKind = Literal["pairs", "text"]
KINDS: dict[DataKind, str] = {"pairs": "pairs of sentences, for translation", "text": "documents, for pre-training"}
FORMAT = 1
MANIFEST = "prepared.json"


# Below, what is not required decides nothing once the folder is written, or was not noted by earlier versions.


class _GivenCorpus(TypedDict):  # in the settings, as far as it is read here
    path: str
    state: State
    weight: NotRequired[Annotated[float, Between(0, 1000)]]
    tag: NotRequired[str]


_Corpora = list[Annotated[_GivenCorpus, OTHERS]]


class _GivenData(TypedDict):
    train: _Corpora
    valid: NotRequired[_Corpora]
    test: NotRequired[_Corpora]


class _CorpusPairs(TypedDict):  # of a split
    path: str
    pairs: Count
    tag: NotRequired[str]


class _PairSizes(TypedDict):
    pairs: Count
    source_tokens: Count
    target_tokens: Count
    corpora: NotRequired[list[_CorpusPairs]]


class _ScoredSizes(_PairSizes):
    text_state: State


class _PairSplits(TypedDict):
    train: _PairSizes
    valid: NotRequired[_ScoredSizes]
    test: NotRequired[_ScoredSizes]


class _TextSizes(TypedDict):
    documents: Count
    sentences: Count
    tokens: Count


class _TextSplits(TypedDict):
    train: _TextSizes
    valid: NotRequired[_TextSizes]


class _InputFile(TypedDict):
    file: str
    bytes: Count
    modified_ns: int
    sha256: str
    state: NotRequired[State]


class _Manifest(TypedDict):  # what both kinds share
    format: int
    pipeline: PipelineName
    vocab_size: Count
    tokenizer_fingerprint: str
    cleaning: NotRequired[Record]  # for the reader of the file
    subwords: NotRequired[dict[str, Count]]
    settings: NotRequired[Annotated[_GivenData, OTHERS]]
    inputs: NotRequired[list[_InputFile]]
    downloads: NotRequired[list[dict[str, str]]]


class _PairsManifest(_Manifest):
    kind: NotRequired[Literal["pairs"]]
    source_lang: str
    target_lang: str
    splits: _PairSplits


class _TextManifest(_Manifest):
    kind: Literal["text"]
    lang: str
    splits: _TextSplits


def read_manifest(folder: Path, kind: DataKind | None = None) -> Record:
    """Read prepared.json, or raise an error that explains why it is not a prepared folder, or not of this kind."""
    path = folder / MANIFEST
    check(folder, [MANIFEST], REMEDY)
    try:
        content: Record = read_json(path, Record, REMEDY)
    except (FileNotFoundError, NotADirectoryError):
        raise MacaronError(f"{path}: no such file. Is {folder} a folder that 'macaron prepare' wrote?") from None
    noted, held = content.get("format"), content.get("kind", "pairs")
    require(noted == FORMAT, f"{path}: format {shown(noted)}, this version reads {FORMAT}. {REMEDY}")
    require(held in tuple(KINDS), f"{path}: holds {shown(held)}, which this version does not know. {REMEDY}")
    if kind is not None and held != kind:
        raise MacaronError(f"{folder} holds {KINDS[held]}; expected {KINDS[kind]}. Give another folder.")
    manifest: Record = conforming(_PairsManifest if held == "pairs" else _TextManifest, content, path, REMEDY)
    for split, sizes in manifest["splits"].items():
        noted = sizes.get("corpora")
        if noted is not None and sum(each["pairs"] for each in noted) != sizes["pairs"]:
            raise MacaronError(f"{path}: the corpora of {split} do not add up to its pairs. {REMEDY}")
    return manifest


def data_kind(folder: str | Path) -> DataKind:
    """What a prepared folder holds."""
    kind: DataKind = read_manifest(Path(folder)).get("kind", "pairs")
    return kind


Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
TextSplit = Literal["train", "valid"]


class PreparedFolder:
    """A prepared folder of either kind: a split has one token store per column. All is opened when it is asked for."""

    kind: ClassVar[DataKind]
    #: What is counted in prepared.json: pairs or sentences.
    rows: ClassVar[str]
    #: For each column the ending of its files' names, after that of the split, and the key of its number of tokens.
    columns: dict[str, str]

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        #: The contents of prepared.json.
        self.manifest = manifest
        self.pipeline: str = manifest["pipeline"]
        self.vocab_size: int = manifest["vocab_size"]
        self.tokenizer_fingerprint: str = manifest["tokenizer_fingerprint"]
        self._stores: dict[Split, tuple[TokenStore, ...]] = {}

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Open a prepared folder; its stores are checked against prepared.json when they are opened."""
        folder = Path(folder)
        return cls(folder, read_manifest(folder, cls.kind))

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits of the folder."""
        return tuple(split for split in SPLITS if split in self.manifest["splits"])

    @cached_property
    def tokenizer(self) -> MacaronTokenizer:
        """The tokenizer, verified by its fingerprint."""
        folder = self.folder / "tokenizer"
        self.verify([])
        try:
            tokenizer = MacaronTokenizer.from_pretrained(folder)
        except Exception as error:  # tokenizers raises nearly anything for a damaged file
            raise MacaronError(f"{folder}: the tokenizer cannot be read ({error}). {REMEDY}") from error
        if len(tokenizer) != self.vocab_size or not agrees(self.tokenizer_fingerprint, tokenizer.fingerprint()):
            raise MacaronError(f"{folder}: not the tokenizer that {MANIFEST} names. {REMEDY}")
        return tokenizer

    def stores(self, split: Split) -> tuple[TokenStore, ...]:
        """The token stores of a split, one per column, checked."""
        if split in self._stores:
            return self._stores[split]
        sizes = self._sizes(split)
        self.verify([split])
        stores = []
        for ending, tokens in self.columns.items():
            store = TokenStore(self.folder / f"{split}{ending}", self.vocab_size, sizes[self.rows], sizes[tokens])
            store.check()
            stores.append(store)
        return self._stores.setdefault(split, tuple(stores))

    def verify(self, splits: Sequence[str], again: bool = False) -> None:
        """Refuse damaged files of some splits; ``again``: read those, too, that have not changed since then."""
        names = [MANIFEST, "tokenizer/*", *(f"{split}.*" for split in splits)]
        check(self.folder, names, REMEDY, again=again, remember=True)

    def documents(self, split: Split) -> NDArray[np.uint64] | None:
        """The first sentence of every document, then the number of sentences; None for pairs."""
        return None

    def check(self) -> None:
        """Open everything, so that damage is found."""
        for split in self.splits:
            self.stores(split)
            self.documents(split)
        _ = self.tokenizer

    @cached_property
    def digest(self) -> str:
        """A digest of the training tokens, sentence and document boundaries included: 32 hexadecimal digits."""
        self.verify(["train"])
        names = [f"train{ending}.{part}" for ending in self.columns for part in ("ids", "offsets", "documents")]
        paths = [self.folder / name for name in names if (self.folder / name).is_file()]
        noted = recorded(self.folder) or {}  # verified; other folders are read
        found = (noted[path.name]["sha256"] if path.name in noted else digest(path) for path in paths)
        return hashlib.sha256(" ".join(found).encode()).hexdigest()[:32]

    def _sizes(self, split: str) -> dict[str, Any]:
        if split not in self.splits:
            raise MacaronError(f"{self.folder}: no split {split!r}; there is {', '.join(self.splits)}")
        sizes: dict[str, Any] = self.manifest["splits"][split]
        return sizes


@dataclass(frozen=True)
class PairStore:
    """The two sides of a split, line for line, all with ``</s>``."""

    source: TokenStore
    target: TokenStore

    def __len__(self) -> int:
        return len(self.source)


class PreparedData(PreparedFolder):
    """Pairs of sentences for translation, opened with `PreparedData.open`."""

    kind: ClassVar[DataKind] = "pairs"
    rows = "pairs"

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        super().__init__(folder, manifest)
        self.source_lang: str = manifest["source_lang"]
        self.target_lang: str = manifest["target_lang"]
        self.languages = (self.source_lang, self.target_lang)
        self.columns = {f".{self.source_lang}": "source_tokens", f".{self.target_lang}": "target_tokens"}

    def pairs(self, split: Split) -> PairStore:
        """Open the token stores of a split."""
        return PairStore(*self.stores(split))

    def corpora(self, split: Split) -> tuple[CorpusPart, ...]:
        """The corpora of a split, in the order of its pairs. (Earlier versions did not note them.)"""
        sizes = self._sizes(split)
        given = self.manifest.get("settings", {}).get(split, []) if split == "train" else []
        weights = {corpus["path"]: corpus.get("weight", 1.0) for corpus in given}
        noted = sizes.get("corpora", [{"path": "", "pairs": sizes["pairs"]}])
        return tuple(CorpusPart(**each, weight=weights.get(each["path"], 1.0)) for each in noted)

    def tags(self, split: Split) -> list[str | None]:
        """The tag of every pair."""
        return [corpus.tag for corpus in self.corpora(split) for _ in range(corpus.pairs)]

    def text(self, split: Split, language: str) -> list[str]:
        """The lines of a split as they were given (see `text_state`), for scoring; not kept for ``train``."""
        expected = self._sizes(split)["pairs"]
        self.verify([split])
        path = self.folder / f"{split}.{language}"
        lines = list(read_lines(path))
        if len(lines) != expected:
            raise MacaronError(f"{path}: {len(lines):,} lines instead of {expected:,}. {REMEDY}")
        return lines

    def text_state(self, split: Split) -> State:
        """The state of a split's text: ``raw`` (plain) or ``moses`` (it was given tokenised, and kept so)."""
        state: State = self._sizes(split)["text_state"]
        return state

    def check(self) -> None:
        """Open everything, so that damage is found."""
        super().check()
        for split in self.splits:
            if split != "train":
                for language in self.languages:
                    self.text(split, language)


class PreparedText(PreparedFolder):
    """Documents for pre-training, opened with `PreparedText.open`.

    Document d of a split is its sentences ``documents[d]`` to ``documents[d + 1]``. Sentences hold no special tokens;
    no sentence and no document is empty.
    """

    kind: ClassVar[DataKind] = "text"
    rows = "sentences"

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        super().__init__(folder, manifest)
        self.lang: str = manifest["lang"]
        self.columns = {"": "tokens"}

    def sentences(self, split: Split) -> TokenStore:
        """The sentences of a split, in the order of the text."""
        return self.stores(split)[0]

    def documents(self, split: Split) -> NDArray[np.uint64]:
        """The first sentence of every document, then the number of sentences (memory-mapped)."""
        expected = self._sizes(split)
        self.verify([split])
        path = self.folder / f"{split}.documents"
        documents: NDArray[np.uint64] = map_file(path, OFFSET, expected["documents"] + 1)
        if int(documents[0]) != 0 or int(documents[-1]) != expected["sentences"]:
            raise MacaronError(f"{path}: belongs to other sentences. {REMEDY}")
        check_growth(path, documents, expected["sentences"])
        return documents


def open_prepared(folder: str | Path) -> PreparedData | PreparedText:
    """Open a prepared folder of either kind."""
    return PreparedText.open(folder) if data_kind(folder) == "text" else PreparedData.open(folder)
