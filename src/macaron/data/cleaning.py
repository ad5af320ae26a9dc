"""Cleaning: what happens to a chunk of lines in a worker process, and the rules by which pairs are dropped."""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from macaron.data.corpus import MAX_LINE, Chunk
from macaron.errors import MacaronError
from macaron.text.pipeline import Pipeline, make_pipeline

Rule = Literal["bad bytes", "too short", "too long", "ratio", "duplicate", "overlap"]
#: The rules, in the order in which they are applied: a pair counts for the first that drops it.
RULES: dict[Rule, str] = {
    "bad bytes": "not UTF-8, or with NUL characters",
    "too short": "fewer than min_words words on a side",
    "too long": "more than max_words words on a side",
    "ratio": "one side too long for the other",
    "duplicate": "the same pair has come before",
    "overlap": "also in valid or test",
}

#: Scripts that put no spaces between words: Thai, Lao, Burmese, Khmer, kana, Chinese characters. A character of
#: these counts as a word.
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


@dataclass(frozen=True)
class Cleaner:
    """Everything a worker must know to clean a chunk. A small value, sent along with every task.

    :param strict: for valid and test: nothing may be dropped, so a line that cannot be read is an error
    :param keep_text: give back the text as it was as well
    """

    source_lang: str
    target_lang: str
    pipeline: str
    lower: bool
    normalize: bool
    min_words: int
    max_words: int
    max_ratio: float
    ratio_slack: float
    strict: bool = False
    keep_text: bool = False

    def text_pipeline(self) -> Pipeline:
        """The pipeline of the tokenizer to come."""
        return make_pipeline(self.pipeline, self.source_lang, self.target_lang, self.lower, self.normalize)

    def rule_against(self, source_words: int, target_words: int) -> Rule | None:
        """The rule that drops a pair of so many words, or None."""
        shorter, longer = sorted((source_words, target_words))
        if shorter < self.min_words:
            return "too short"
        if longer > self.max_words:
            return "too long"
        limit = self.max_ratio * shorter + self.ratio_slack
        return "ratio" if limit > 0 and shorter > 0 and longer > limit else None


@dataclass
class Cleaned:
    """What is left of a chunk: prepared lines (see `macaron.text.pipeline`), each ending in ``\\n``.

    :param hashes: two 64-bit hashes a pair, of its source and its target, by which equal lines are found
    :param texts: the lines as they were, if asked for
    """

    read: int
    kept: int
    sides: tuple[bytes, bytes]
    hashes: bytes
    dropped: dict[Rule, int]
    texts: tuple[bytes, bytes] = (b"", b"")


def clean_chunk(task: tuple[Cleaner, Chunk]) -> Cleaned:
    """Decode, send through the pipeline, count words, apply the rules, hash."""
    cleaner, chunk = task
    pipeline, state = cleaner.text_pipeline(), chunk.corpus.state
    sides: tuple[list[str], list[str]] = ([], [])
    texts: tuple[list[str], list[str]] = ([], [])
    digests = bytearray()
    dropped: Counter[Rule] = Counter()
    for offset, (left, right) in enumerate(zip(chunk.source, chunk.target, strict=True)):
        source, target = decode_line(left), decode_line(right)
        if source is None or target is None:
            if cleaner.strict:
                raise _unreadable(chunk, offset, source is None)
            dropped["too long" if left is None or right is None else "bad bytes"] += 1
            continue
        given = (source, target)
        if not cleaner.strict:  # white space at the ends is noise to learn from, but a test set stays as it is
            source, target = source.strip(), target.strip()
        source = pipeline.encode(source, "source", state)
        target = pipeline.encode(target, "target", state)
        source_words, target_words = source.split(), target.split()
        if not cleaner.strict:
            rule = cleaner.rule_against(count_of_words(source, source_words), count_of_words(target, target_words))
            if rule is not None:
                dropped[rule] += 1
                continue
        sides[0].append(source)
        sides[1].append(target)
        digests += _digest(source_words) + _digest(target_words)
        if cleaner.keep_text:
            texts[0].append(given[0])
            texts[1].append(given[1])
    return Cleaned(
        read=len(chunk.source),
        kept=len(sides[0]),
        sides=(join_lines(sides[0]), join_lines(sides[1])),
        hashes=bytes(digests),
        dropped=dict(dropped),
        texts=(join_lines(texts[0]), join_lines(texts[1])),
    )


def decode_line(raw: bytes | None) -> str | None:
    """The text of a line; None for one that is too long, not UTF-8, or with NUL characters."""
    if raw is None or b"\0" in raw:
        return None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _unreadable(chunk: Chunk, offset: int, is_source: bool) -> MacaronError:
    """Say what is wrong with a line of a valid or test set."""
    path = chunk.corpus.source if is_source else chunk.corpus.target
    raw = (chunk.source if is_source else chunk.target)[offset]
    where = f"{path}, line {chunk.first_line + offset}"
    remedy = "Nothing is dropped from a valid or test set: repair the line, or remove it from both files."
    if raw is None:
        return MacaronError(f"{where}: longer than {MAX_LINE:,} bytes. {remedy}")
    if b"\0" in raw:
        return MacaronError(f"{where}: holds a NUL character. {remedy}")
    return MacaronError(f"{where}: not valid UTF-8. {remedy}")


def count_of_words(text: str, words: list[str]) -> int:
    """Count words; in scripts without spaces, characters."""
    # max() runs at C speed and spares nearly all text the search.
    return len(words) if max(text, default="") < "\u0e00" else len(words) + len(_SPACELESS.findall(text))


def _digest(words: list[str]) -> bytes:
    # 64 bits: among 100 million lines the chance that any two different ones agree is 3 in 10,000.
    return hashlib.blake2b(" ".join(words).encode(), digest_size=8).digest()


def join_lines(lines: list[str]) -> bytes:
    """The bytes of lines, each with its end."""
    return "".join([line + "\n" for line in lines]).encode()
