"""Cleaning: aligned files in chunks of lines, and these into prepared pairs or sentences, in worker processes."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from macaron.data.settings import HEADING, PairsSettings, TextSettings
from macaron.errors import MacaronError
from macaron.files import MAX_LINE, raw_lines
from macaron.settings import load_toml
from macaron.text.pipeline import Pipeline, State
from macaron.text.sentence_splitter import SPACELESS, splitter

_END: Any = object()
#: What each rule drops, by the kind of data.
RULES: dict[str, dict[str, str]] = load_toml(Path(__file__).with_suffix(".toml"))[0]


@dataclass(frozen=True)
class AlignedFiles:
    """Files that are aligned line by line: the two sides of a corpus, by its prefix in the recipe, or a single text."""

    paths: tuple[Path, ...]
    state: State = "raw"
    prefix: str = ""
    tag: str | None = None


@dataclass(frozen=True)
class Chunk:
    """Some lines of aligned files, see `raw_lines`: what one worker does at a time. Files end with their last chunk."""

    files: AlignedFiles
    first_line: int
    columns: tuple[list[bytes | None], ...]
    last: bool = False


def chunks(files: AlignedFiles, max_lines: int, max_bytes: int) -> Iterator[Chunk]:
    """Stream aligned files in chunks. Files that are empty or of different length are refused."""
    names = " and ".join(map(str, files.paths))
    streams = [raw_lines(path) for path in files.paths]
    columns: tuple[list[bytes | None], ...] = tuple([] for _ in streams)
    done = size = 0
    blank = len(streams) == 1  # a text of blank lines is empty; pairs of blank lines are pairs
    for lines in zip_longest(*streams, fillvalue=_END):
        if _END in lines:
            sizes = " and ".join(f"{sum(1 for _ in raw_lines(path)):,}" for path in files.paths)
            raise MacaronError(f"{names} are not aligned: they have {sizes} lines. They must agree line by line.")
        if len(columns[0]) >= max_lines or size >= max_bytes:
            yield Chunk(files, done + 1, columns)
            done += len(columns[0])
            columns, size = tuple([] for _ in streams), 0
        for column, line in zip(columns, lines, strict=True):
            column.append(line)
            size += len(line or b"")
        blank = blank and lines[0] is not None and not lines[0].strip()
    if blank or not columns[0]:
        raise MacaronError(f"{names}: empty. Give files with text, or leave them out.")
    yield Chunk(files, done + 1, columns, last=True)


@dataclass
class CleanedChunk:
    """The rows of a chunk that were kept: pairs or sentences.

    :param counts: as prepared.json names them
    :param columns: prepared lines (see `macaron.text.pipeline`) of each column, each ending in ``\\n``
    :param hashes: two 64-bit hashes per pair, of its source and its target, by which equal lines are found
    :param starts: of documents: a byte for each sentence and one more, 1 if a document of this chunk ended before it
    """

    rows: int
    counts: Counter[str]
    columns: tuple[bytes, ...]
    dropped: Counter[str]
    hashes: bytes = b""
    texts: tuple[bytes, ...] = ()
    starts: bytes = b""


def clean_pairs(chunk: Chunk, settings: PairsSettings, strict: bool, keep_text: bool) -> CleanedChunk:
    """Decode the lines of a chunk, apply the pipeline and the rules.

    :param strict: for valid and test: nothing may be dropped, so a line that cannot be read is an error
    """
    pipeline, state = pipeline_of(settings), chunk.files.state
    rows: list[tuple[str, str]] = []
    texts: list[tuple[str, str]] = []
    hashes = bytearray()
    dropped: Counter[str] = Counter()
    for offset, (left, right) in enumerate(zip(*chunk.columns, strict=True)):
        source, target = _decode(left), _decode(right)
        if source is None or target is None:
            if strict:
                raise _unreadable(chunk, offset, 0 if source is None else 1)
            dropped["too long" if left is None or right is None else "bad bytes"] += 1
            continue
        given = (source, target)
        # White space is noise to learn from: sources are normalised as in translating. A test set stays as it is.
        source, target = given if strict else (" ".join(source.split()), target.strip())
        source = pipeline.encode(source, "source", state)
        target = pipeline.encode(target, "target", state)
        source_words, target_words = source.split(), target.split()
        if not strict:
            rule = rule_against(settings, count_words(source, source_words), count_words(target, target_words))
            if rule is not None:
                dropped[rule] += 1
                continue
        rows.append((source, target))
        texts.append(given)
        hashes += _hash(source_words) + _hash(target_words)
    return CleanedChunk(
        len(rows),
        Counter(read=len(chunk.columns[0]), kept_by_line_rules=len(rows)),
        columns=tuple(_join([row[side] for row in rows]) for side in (0, 1)),
        dropped=dropped,
        hashes=bytes(hashes),
        texts=tuple(_join([text[side] for text in texts]) for side in (0, 1)) if keep_text else (),
    )


def clean_text(chunk: Chunk, settings: TextSettings) -> CleanedChunk:
    """Split paragraphs into sentences; blank lines end documents, or headings begin them."""
    pipeline, state = pipeline_of(settings), chunk.files.state
    split = splitter(state, settings.lang)
    sentences: list[str] = []
    ends: set[int] = set()  # numbers of sentences before the ends of documents
    dropped: Counter[str] = Counter()
    paragraphs = words = 0
    for raw in chunk.columns[0]:
        line = _decode(raw)
        headings = settings.documents == "headings"
        if line is not None and (HEADING.fullmatch(line) if headings else not line.strip()):
            ends.add(len(sentences))
        if line is not None and not line.strip():
            continue
        paragraphs += 1
        if line is None:
            dropped["long line" if raw is None else "bad bytes"] += 1
            continue
        for sentence in split(" ".join(line.split())):
            prepared = pipeline.encode(sentence, state=state)
            parts = prepared.split()
            if not parts:
                dropped["nothing"] += 1
            elif (count := count_words(prepared, parts)) > settings.max_words:
                dropped["too long"] += 1
            else:
                sentences.append(prepared)
                words += count
    if chunk.last:
        ends.add(len(sentences))
    return CleanedChunk(
        len(sentences),
        Counter(documents=0, paragraphs=paragraphs, sentences=len(sentences), words=words),
        columns=(_join(sentences),),
        dropped=dropped,
        starts=bytes(index in ends for index in range(len(sentences) + 1)),
    )


def rule_against(settings: PairsSettings, source_words: int, target_words: int) -> str | None:
    """The rule that drops a pair with these numbers of words, or None."""
    shorter, longer = sorted((source_words, target_words))
    if shorter < settings.min_words:
        return "too short"
    if longer > settings.max_words:
        return "too long"
    limit = settings.max_ratio * shorter + settings.ratio_slack
    return "ratio" if limit > 0 and shorter > 0 and longer > limit else None


def count_words(text: str, words: list[str]) -> int:
    """Count words; in scripts without spaces each character counts as one."""
    # max() runs at C speed and saves nearly all text the search.
    return len(words) if max(text, default="") < "\u0e00" else len(words) + len(SPACELESS.findall(text))


def pipeline_of(settings: PairsSettings | TextSettings) -> Pipeline:
    """The pipeline of a recipe's data."""
    return Pipeline(settings.pipeline, *settings.languages, settings.lower, settings.normalize)


def _decode(raw: bytes | None) -> str | None:
    """The text of a line; None if it is too long, not UTF-8, or has NUL characters."""
    if raw is None or b"\0" in raw:
        return None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _unreadable(chunk: Chunk, offset: int, column: int) -> MacaronError:
    raw = chunk.columns[column][offset]
    problem = f"longer than {MAX_LINE:,} bytes"
    if raw is not None:
        problem = "contains a NUL character" if b"\0" in raw else "not valid UTF-8"
    where = f"{chunk.files.paths[column]}, line {chunk.first_line + offset}"
    remedy = "Nothing is dropped from a valid or test set: repair the line, or remove it from both files."
    return MacaronError(f"{where}: {problem}. {remedy}")


def _hash(words: list[str]) -> bytes:
    # 64 bits: among 100 million lines the chance that any two different ones agree is 3 in 10,000.
    return hashlib.blake2b(" ".join(words).encode(), digest_size=8).digest()


def _join(lines: list[str]) -> bytes:
    return "".join([line + "\n" for line in lines]).encode()
