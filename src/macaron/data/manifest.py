"""prepared.json: what it holds, and its reader."""

from pathlib import Path
from typing import Annotated, Literal, NotRequired, TypedDict

from macaron.data.store import REMEDY
from macaron.errors import MacaronError
from macaron.json_files import Count, Record, conforming, read_json
from macaron.seal import check
from macaron.settings import OTHERS, Between
from macaron.text.pipeline import PipelineName, State

#: What a prepared folder holds.
DataKind = Literal["pairs", "text"]
KINDS: dict[DataKind, str] = {"pairs": "pairs of sentences, for translation", "text": "documents, for pre-training"}
FORMAT = 1
MANIFEST = "prepared.json"


class GivenCorpus(TypedDict):
    """A corpus in the settings, as far as it is read here."""

    path: str
    state: State
    weight: NotRequired[Annotated[float, Between(0, 1000)]]
    tag: NotRequired[str]


_Corpora = list[Annotated[GivenCorpus, OTHERS]]


class GivenData(TypedDict):
    """The ``[data]`` section, as far as it is read here."""

    train: _Corpora
    valid: NotRequired[_Corpora]
    test: NotRequired[_Corpora]


class CorpusPairs(TypedDict):
    """The pairs of a split that come from one corpus. (Earlier versions did not note them.)"""

    path: str
    pairs: Count
    tag: NotRequired[str]


class PairSizes(TypedDict):
    """The sizes of a split of pairs."""

    pairs: Count
    source_tokens: Count
    target_tokens: Count
    corpora: NotRequired[list[CorpusPairs]]


class ScoredSizes(PairSizes):
    """The same of one whose text is kept for scoring, and the state of this text."""

    text_state: State


class PairSplits(TypedDict):
    """The splits of pairs."""

    train: PairSizes
    valid: NotRequired[ScoredSizes]
    test: NotRequired[ScoredSizes]


class TextSizes(TypedDict):
    """The sizes of a split of documents."""

    documents: Count
    sentences: Count
    tokens: Count


class TextSplits(TypedDict):
    """The splits of documents."""

    train: TextSizes
    valid: NotRequired[TextSizes]


class PairsCleaning(TypedDict):
    """What became of the pairs to train on."""

    read: Count
    dropped: dict[str, Count]
    held_out: Count
    kept: Count
    corpora: list[Record]


class TextCleaning(TypedDict):
    """What became of the documents."""

    documents: Count
    paragraphs: Count
    sentences: Count
    words: Count
    dropped: dict[str, Count]
    files: list[Record]


class InputFile(TypedDict):
    """A file that was read."""

    file: str
    bytes: Count
    modified_ns: int
    sha256: str
    state: NotRequired[State]


class Manifest(TypedDict):
    """What the manifests of both kinds share. What is not required decides nothing once the folder is written."""

    format: int
    pipeline: PipelineName
    vocab_size: Count
    tokenizer_fingerprint: str
    subwords: NotRequired[dict[str, Count]]
    settings: NotRequired[Annotated[GivenData, OTHERS]]
    inputs: NotRequired[list[InputFile]]
    downloads: NotRequired[list[dict[str, str]]]


class PairsManifest(Manifest):
    """Of pairs."""

    kind: NotRequired[Literal["pairs"]]
    source_lang: str
    target_lang: str
    splits: PairSplits
    cleaning: NotRequired[PairsCleaning]


class TextManifest(Manifest):
    """Of documents."""

    kind: Literal["text"]
    lang: str
    splits: TextSplits
    cleaning: NotRequired[TextCleaning]


class _Head(TypedDict):
    format: int
    kind: NotRequired[str]


def read_manifest(folder: Path, kind: DataKind | None = None) -> Record:
    """Read prepared.json, or raise an error that explains why it is not a prepared folder, or not of this kind."""
    path = folder / MANIFEST
    check(folder, [MANIFEST], REMEDY)
    try:
        head = read_json(path, Annotated[_Head, OTHERS], REMEDY)
    except (FileNotFoundError, NotADirectoryError):
        raise MacaronError(f"{path}: no such file. Is {folder} a folder that 'macaron prepare' wrote?") from None
    held = head.get("kind", "pairs")
    if head["format"] != FORMAT:
        raise MacaronError(f"{path}: format {head['format']}, this version reads {FORMAT}. {REMEDY}")
    if held not in KINDS:
        raise MacaronError(f"{path}: holds {held!r}, which this version does not know. {REMEDY}")
    if kind is not None and held != kind:
        raise MacaronError(f"{folder} holds {KINDS[held]}; expected {KINDS[kind]}. Give another folder.")
    manifest: Record = conforming(PairsManifest if held == "pairs" else TextManifest, head, path, REMEDY)
    for split, sizes in manifest["splits"].items():
        noted = sizes.get("corpora")
        if noted is not None and sum(each["pairs"] for each in noted) != sizes["pairs"]:
            raise MacaronError(f"{path}: the corpora of {split} do not add up to its pairs. {REMEDY}")
    return manifest


def data_kind(folder: str | Path) -> DataKind:
    """What a prepared folder holds."""
    kind: DataKind = read_manifest(Path(folder)).get("kind", "pairs")
    return kind
