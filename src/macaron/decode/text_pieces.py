"""Text in pieces: sentences to translate, and the text that is kept between them.

    text  ->  pieces  ->  translations of the sentences  ->  text

Kept are white space, tabs between cells, line breaks, list marks, and what has no words: numbers, rules, addresses.
Lines of a file, cells of a table and paragraphs of a document all go this way.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

from macaron.decode.settings import Hypothesis, Note
from macaron.errors import MacaronError
from macaron.text.abbreviations import abbreviations
from macaron.text.pipeline import State
from macaron.text.sentence_splitter import SPACELESS, splitter

LongLines = Literal["split", "refuse", "truncate"]
END = 1  # `</s>`, which every source ends with

#: Tabs between cells and all line breaks.
_BREAK = re.compile(r"([\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+)")
_DASH = r"[-–—*+•·‣◦▪●○■□►▶➢✓✔→]"
_BULLET = re.compile(rf"{_DASH}\s+")
#: At the start of a line or cell, also one after another: bullets, "> ", "## ", "1. ", "2.3) ", "(4) ", "a) ", "iv. ".
_MARKS = re.compile(
    rf"(?:(?:{_DASH}|>|#{{1,6}}|\d{{1,3}}(?:\.\d{{1,3}})*[.)]|[A-Za-z]\)|[ivx]{{2,4}}[.)]|\((?:\d{{1,3}}|[A-Za-z])\))(?:\s+|$))+"
)
_LAST_NUMBER = re.compile(r"\d{1,3}\.\s+$")
_FIRST_WORD = re.compile(r"\w*")
_ADDRESS = re.compile(r"\w+://\S+|www\.\S+|\S+@\S+\.\w+")
#: Languages that are written without a space between sentences.
_NO_SPACE_BETWEEN = ("zh", "ja")
#: Boundaries to cut a long sentence at, best first: sentences, clauses, words.
_BOUNDARIES = (
    re.compile(r"(?<=[.!?…])[\"'»”’)\]]*\s+|(?<=[。！？])"),
    re.compile(r"(?<=[,;:–—])\s+|(?<=[，、；：])"),
    re.compile(r"\s+"),
)


@dataclass(frozen=True)
class Piece:
    """A part of a text: a sentence to translate, its white space normalised, or text that is kept as it is."""

    text: str
    kept: bool = False


class LineRefused(MacaronError):
    """A line is too long and was to be refused; nothing has been translated.

    :param index: its index among the given lines, so that those before it can still be translated
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


@dataclass(frozen=True)
class FittedText:
    """The pieces of a text, the token ids of its sentences, each with its end, and what to note about the text."""

    pieces: list[Piece]
    sources: list[list[int]]
    notes: list[Note]


def text_pieces(text: str, lang: str = "en", state: State = "raw") -> list[Piece]:
    """The sentences of a text and what is between them.

    Together the pieces are the text, but for white space inside sentences.

    :param lang: of the text
    :param state: ``moses`` for text that is tokenised already
    """
    pieces: list[Piece] = []
    for index, part in enumerate(_BREAK.split(text)):  # cells and breaks take turns
        if index % 2 or not part.strip():
            pieces.append(Piece(part, kept=True))
            continue
        cell = part.lstrip()
        content = _after_marks(cell, lang)
        sentences = splitter(state, lang)(content)
        pieces.append(Piece(part[: len(part) - len(content)], kept=True))
        for sentence, space in zip(sentences, _spaces_after(content, sentences), strict=True):
            bullet = _BULLET.match(sentence)
            words = sentence[bullet.end() :] if bullet else sentence
            pieces.append(Piece(sentence[: len(sentence) - len(words)], kept=True))
            pieces.append(Piece(words, kept=not any(map(str.isalpha, words)) or bool(_ADDRESS.fullmatch(words))))
            pieces.append(Piece(space, kept=True))
    return [piece for piece in pieces if piece.text]


def whole_line(line: str) -> list[Piece]:
    """A line as one sentence; an empty one has no pieces."""
    sentence = " ".join(line.split())
    return [Piece(sentence)] if sentence else []


def _after_marks(cell: str, lang: str) -> str:
    """A cell without the list marks at its start. In "1. Mai" there are none."""
    marks = _MARKS.match(cell)
    if marks is None:
        return cell
    number = _LAST_NUMBER.search(marks[0])
    word = _FIRST_WORD.match(cell, marks.end())
    ordinal = number is not None and word is not None and word[0] in abbreviations(lang).ordinals
    return cell[number.start() if number is not None and ordinal else marks.end() :]


def _spaces_after(text: str, sentences: Sequence[str]) -> list[str]:
    """The white space after each sentence of a text, whose sentences differ from it in white space only."""
    if len(sentences) < 2:
        return [text[len(text.rstrip()) :] for _ in sentences]
    places = [index for index, letter in enumerate(text) if not letter.isspace()]
    ends = list(accumulate(len(sentence) - sentence.count(" ") for sentence in sentences))
    starts = [places[end] for end in ends[:-1]] + [len(text)]
    return [text[places[end - 1] + 1 : start] for end, start in zip(ends, starts, strict=True)]


def fit_texts(
    texts: Sequence[Sequence[Piece]],
    encode: Callable[[list[str]], list[list[int]]],
    longest: int,
    long_lines: LongLines,
    first_line: int = 1,
) -> list[FittedText]:
    """Encode the sentences of texts, and cut those of more than ``longest`` tokens.

    :param encode: sentences to token ids, each with its end
    :param first_line: number of the first text, for messages
    """
    encoded = iter(encode([piece.text for text in texts for piece in text if not piece.kept]))
    fitted = [FittedText([], [], []) for _ in texts]
    for index, (text, made) in enumerate(zip(texts, fitted, strict=True)):
        for piece in text:
            ids = [] if piece.kept else next(encoded)
            if len(ids) <= END:  # kept, or nothing that the tokenizer knows
                made.pieces.append(Piece(piece.text, kept=True))
            elif len(ids) <= longest + END:
                made.pieces.append(piece)
                made.sources.append(ids)
            elif long_lines == "refuse":
                raise LineRefused(
                    f"line {first_line + index} has a sentence of {len(ids) - END} tokens, more than {longest}: "
                    "shorten it or split such sentences (--long-lines split)",
                    index,
                )
            else:
                cut = parts_that_fit if long_lines == "split" else longest_start
                parts = cut(piece.text, lambda part: len(encode([part])[0]) <= longest + END)
                made.pieces.extend(parts)
                made.sources.extend(encode([part.text for part in parts if not part.kept]))
                words = any(part.kept and part.text != " " for part in parts)
                made.notes.append("long word" if words else "long sentence")
    return fitted


def parts_that_fit(text: str, fits: Callable[[str], bool]) -> list[Piece]:
    """Cut a sentence into parts that fit, each at the best kind of boundary, as near to the middle as possible.

    A word that does not fit is kept, untranslated: it is no word of a language. Scripts without spaces are cut
    anywhere.

    :param text: without white space at its ends
    :param fits: whether a text is short enough for the model
    """
    if fits(text) or len(text) < 2:
        return [Piece(text)]
    cut = _cut(text)
    if cut is None:
        return [Piece(text, kept=True)]
    left, right = text[:cut].rstrip(), text[cut:].lstrip()
    space = [Piece(" ", kept=True)] if len(left) + len(right) < len(text) else []
    return [*parts_that_fit(left, fits), *space, *parts_that_fit(right, fits)]


def longest_start(text: str, fits: Callable[[str], bool]) -> list[Piece]:
    """The longest beginning that fits, ending between words if possible, as the only part."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(text[:middle]) else (low, middle - 1)
    if low == len(text):
        return [Piece(text)]
    words = text[:low] if text[low : low + 1].isspace() else text[:low].rpartition(" ")[0]
    return [Piece(words.rstrip() or text[:low])]


def _cut(text: str) -> int | None:
    for boundary in _BOUNDARIES:
        # The text has no white space at its ends: both sides of a cut inside are non-empty.
        inside = [match.end() for match in boundary.finditer(text) if match.end() < len(text)]
        if inside:
            return min(inside, key=lambda at: abs(at - len(text) / 2))
    return len(text) // 2 if SPACELESS.search(text) else None


def join_pieces(text: FittedText, lists: Sequence[list[Hypothesis]], penalty: float, lang: str) -> list[Hypothesis]:
    """The translations of a text from those of its sentences: the n-th joins the n-th best of each.

    :param lists: the hypotheses of each sentence, best first; one sentence alone keeps its own
    :param penalty: exponent of the length that scores are divided by
    :param lang: of the translation
    """
    if len(text.pieces) == len(lists) == 1 and not text.notes:
        return lists[0]
    joined: list[Hypothesis] = []
    for rank in range(max(map(len, lists), default=1)):
        chosen = [best[min(rank, len(best) - 1)] for best in lists]
        tokens = tuple(token for each in chosen for token in each.tokens)
        scores = tuple(score for each in chosen for score in each.token_scores)
        score = sum(scores) / max(len(tokens), 1) ** penalty
        notes = tuple(dict.fromkeys([*text.notes, *(note for each in chosen for note in each.notes)]))
        made = join_texts(text.pieces, [each.text for each in chosen], lang)
        joined.append(Hypothesis(made, score, tokens, scores, notes))
    return sorted(joined, key=lambda each: -each.score)


def join_texts(pieces: Sequence[Piece], translations: Sequence[str], lang: str) -> str:
    """The translation of a text from those of its sentences, in this language."""
    given = iter(translations)
    texts = [piece.text if piece.kept else next(given) for piece in pieces]
    close = lang.startswith(_NO_SPACE_BETWEEN)
    for index, (before, after) in enumerate(pairwise(pieces)):
        if not before.kept and not after.kept and not close:
            texts[index] += " "  # Chinese sentences have no space between them, their translations do
        elif close and before.text == " " and index > 0 and not pieces[index - 1].kept and not after.kept:
            texts[index] = ""
    return "".join(texts)
