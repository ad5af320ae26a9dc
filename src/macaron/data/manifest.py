"""prepared.json: what it holds, and its reader."""

from pathlib import Path
from typing import Annotated, Literal, NotRequired, TypedDict

from macaron.data.store import REMEDY
from macaron.errors import MacaronError, require, shown
from macaron.json_files import Count, Record, conforming, read_json
from macaron.limits import Between
from macaron.seal import check
from macaron.settings import OTHERS
from macaron.text.pipeline import PipelineName, State

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
