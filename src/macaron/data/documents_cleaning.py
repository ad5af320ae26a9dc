"""From lines of text to the sentences of documents: what happens to a chunk in a worker process."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from macaron.data.cleaning import count_of_words, decode_line, join_lines
from macaron.data.corpus import raw_lines
from macaron.data.sentences import splitter
from macaron.errors import MacaronError
from macaron.text.pipeline import State, make_pipeline

TextRule = Literal["bad bytes", "long line", "too long", "nothing"]
#: The rules by which something is dropped, what they drop, and why.
TEXT_RULES: dict[TextRule, tuple[str, str]] = {
    "bad bytes": ("paragraphs", "not UTF-8, or with NUL characters"),
    "long line": ("paragraphs", "of a megabyte or more: has the text lost its line ends?"),
    "too long": ("sentences", "more than max_words words"),
    "nothing": ("sentences", "nothing left by the pipeline"),
}
#: A chunk is what one worker does at a time: so many lines, or fewer if they are long.
CHUNK_LINES = 5_000
CHUNK_BYTES = 2 << 20


@dataclass(frozen=True)
class TextFile:
    """A text, found."""

    path: Path
    state: State = "raw"


@dataclass(frozen=True)
class TextChunk:
    """Some lines of a text, still bytes; None stands for a line that is far too long.

    :param last: the text ends with it, and so does the last document
    """

    state: State
    lines: list[bytes | None]
    last: bool


def text_chunks(text: TextFile, chunk_lines: int = CHUNK_LINES) -> Iterator[TextChunk]:
    """Stream a text in chunks; an empty one is refused."""
    lines: list[bytes | None] = []
    size = found = 0
    for line in raw_lines(text.path):
        if len(lines) >= chunk_lines or size >= CHUNK_BYTES:
            yield TextChunk(text.state, lines, False)
            lines, size = [], 0
        lines.append(line)
        size += len(line or b"")
        found += line is None or (not line.isspace() and line != b"")
    if not found:
        raise MacaronError(f"{text.path} is empty. Give a file with text, or leave it out.")
    yield TextChunk(text.state, lines, True)


@dataclass(frozen=True)
class TextCleaner:
    """Everything a worker must know to clean a chunk. A small value, sent along with every task."""

    lang: str
    pipeline: str
    lower: bool
    normalize: bool
    max_words: int


@dataclass
class CleanedText:
    """What is left of a chunk: prepared sentences (see `macaron.text.pipeline`), each ending in ``\\n``.

    :param counts: number of sentences in each document, or part of one, none of them 0
    :param opens: a document ended before the first sentence: it is not in the same one as those of the chunk before
    :param closes: a document ended behind the last sentence
    """

    text: bytes
    counts: list[int]
    opens: bool
    closes: bool
    lines: int
    paragraphs: int
    words: int
    dropped: dict[TextRule, int]


def clean_text(task: tuple[TextCleaner, TextChunk]) -> CleanedText:
    """Decode, split into sentences, send through the pipeline, apply the rules; blank lines end documents."""
    cleaner, chunk = task
    pipeline = make_pipeline(cleaner.pipeline, cleaner.lang, cleaner.lang, cleaner.lower, cleaner.normalize)
    split = splitter(chunk.state, cleaner.lang)
    sentences: list[str] = []
    ends: list[int] = []  # a document ended behind so many sentences
    dropped: Counter[TextRule] = Counter()
    paragraphs = words = 0
    for raw in chunk.lines:
        line = decode_line(raw)
        if line is not None and not line.strip():
            ends.append(len(sentences))
            continue
        paragraphs += 1
        if line is None:
            dropped["long line" if raw is None else "bad bytes"] += 1
            continue
        for sentence in split(" ".join(line.split())):
            prepared = pipeline.encode(sentence, state=chunk.state)
            parts = prepared.split()
            if not parts:
                dropped["nothing"] += 1
            elif (count := count_of_words(prepared, parts)) > cleaner.max_words:
                dropped["too long"] += 1
            else:
                sentences.append(prepared)
                words += count
    if chunk.last:
        ends.append(len(sentences))
    return CleanedText(
        text=join_lines(sentences),
        counts=_counts(ends, len(sentences)),
        opens=bool(ends) and ends[0] == 0,
        closes=bool(ends) and ends[-1] == len(sentences),
        lines=len(chunk.lines),
        paragraphs=paragraphs,
        words=words,
        dropped=dict(dropped),
    )


def _counts(ends: Sequence[int], sentences: int) -> list[int]:
    counts, start = [], 0
    for end in (*ends, sentences):
        if end > start:
            counts.append(end - start)
            start = end
    return counts
