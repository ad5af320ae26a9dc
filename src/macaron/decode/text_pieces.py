"""Text in pieces: sentences to translate, and the text that is kept between them.

    text  ->  pieces  ->  translations of the sentences  ->  text

Kept are white space, tabs between cells, line breaks, list marks, and what has no words: numbers, rules, addresses.
Lines of a file, cells of a table and paragraphs of a document all go this way.

A sentence with an address, an emoji or a long number inside is translated twice: whole, and cut at these. The parts are
taken where the whole translation has lost one of them.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Protocol, TypeVar

from macaron.decode.pieces import END, FittedText, LineRefused, LongLines, Piece, longest_start, parts_that_fit
from macaron.decode.settings import Hypothesis
from macaron.text.abbreviations import abbreviations
from macaron.text.pipeline import State
from macaron.text.sentence_splitter import splitter

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
#: What no translation changes. Each begins after a boundary and has bounded parts: a search takes linear time.
_SIGN = (
    r"(?:[\U0001f000-\U0001faff\u231a-\u23ff\u2600-\u27bf\u2b00-\u2bff]"
    r"[\ufe0e\ufe0f\u200d\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*|[0-9#*]\ufe0f?\u20e3)+"  # with modifiers
    r"|(?<![\w@#&/])[@#][^\W\d_]\w*(?![\w@])"  # names and tags of posts
)
_ADDRESS = (
    r"(?<!\w)(?:\w{1,20}://|www\.)\S*[^\s.,;:!?…()\[\]{}<>\"'«»‹›“”„‘’。！？]"
    r"|(?<![\w.+-])@?[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"
)
_LITERAL = re.compile(rf"(?P<sign>{_SIGN})|{_ADDRESS}|\d{{4,}}")
#: In a translation a number may have other separators: 15000, 15,000.
_SEPARATORS = re.compile(r"(?<=\d)[.,'’\s](?=\d{3})")
#: Literals of a sentence that its whole translation is searched for; with more it is only cut.
_MOST_LITERALS = 32
#: Languages that are written without a space between sentences.
_NO_SPACE_BETWEEN = ("zh", "ja")


class HasText(Protocol):
    """A translation of whatever kind."""

    @property
    def text(self) -> str: ...  # noqa: D102


AnyText = TypeVar("AnyText", bound=HasText)


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
            pieces += _around_literals(words) if state == "raw" else [Piece(words, kept=not _has_words(words))]
            pieces.append(Piece(space, kept=True))
    return [piece for piece in pieces if piece.text]


def _has_words(text: str) -> bool:
    return any(map(str.isalpha, text))


def _around_literals(sentence: str) -> list[Piece]:
    """A sentence, without the emoji and names at its ends."""
    found = list(_LITERAL.finditer(sentence))
    start, end = 0, len(sentence)
    first, last = 0, len(found)
    while first < last and found[first]["sign"] and not _has_words(sentence[start : found[first].start()]):
        start, first = found[first].end(), first + 1
    while first < last and found[last - 1]["sign"] and not _has_words(sentence[found[last - 1].end() : end]):
        end, last = found[last - 1].start(), last - 1
    inner = cut_at(sentence[start:end], [(each.start() - start, each.end() - start) for each in found[first:last]])
    return [Piece(sentence[:start], kept=True), *inner, Piece(sentence[end:], kept=True)]


def cut_at(sentence: str, literals: Sequence[tuple[int, int]]) -> list[Piece]:
    """A sentence that has its parts, and the space at its ends; the parts alone if literals are all or very many.

    :param literals: their places in the sentence, in order
    """
    if not literals:
        return _spaced(sentence)
    parts: list[Piece] = []
    end = 0
    for start, stop in literals:
        parts += [*_spaced(sentence[end:start]), Piece(sentence[start:stop], kept=True, literal=True)]
        end = stop
    parts = [part for part in (*parts, *_spaced(sentence[end:])) if part.text]
    if len(literals) > _MOST_LITERALS or all(part.kept for part in parts):
        return parts
    left, whole, right = _spaced(sentence)
    inner = parts[bool(left.text) : len(parts) - bool(right.text)]
    return [left, replace(whole, parts=tuple(inner)), right]


def _spaced(text: str) -> list[Piece]:
    words = text.strip()
    left = len(text) - len(text.lstrip())
    return [
        Piece(text[:left], kept=True),
        Piece(words, kept=not _has_words(words)),
        Piece(text[left + len(words) :], kept=True),
    ]


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
    encoded = iter(encode([piece.text for text in texts for piece in sentences(text)]))
    fitted = [FittedText([], [], []) for _ in texts]

    def fit(piece: Piece, made: FittedText, line: int) -> None:
        ids = [] if piece.kept else next(encoded)
        if len(ids) <= END:  # kept, or nothing that the tokenizer knows
            made.pieces.append(replace(piece, kept=True, parts=()))
            for _ in sentences(piece.parts):
                next(encoded)
        elif len(ids) <= longest + END:
            parts = FittedText([], [], [])
            for part in piece.parts:
                fit(part, parts, line)
            made.pieces.append(replace(piece, parts=tuple(parts.pieces)))
            made.sources.extend([ids, *parts.sources])
        elif long_lines == "refuse":
            raise LineRefused(
                f"line {first_line + line} has a sentence of {len(ids) - END} tokens, more than {longest}: "
                "shorten it or split such sentences (--long-lines split)",
                line,
            )
        elif long_lines == "split" and piece.parts:
            for part in piece.parts:
                fit(part, made, line)
        else:
            for _ in sentences(piece.parts):
                next(encoded)
            cut = parts_that_fit if long_lines == "split" else longest_start
            cuts = cut(piece.text, lambda part: len(encode([part])[0]) <= longest + END)
            made.pieces.extend(cuts)
            made.sources.extend(encode([part.text for part in cuts if not part.kept]))
            words = any(part.kept and part.text != " " for part in cuts)
            made.notes.append("long word" if words else "long sentence")

    for line, (text, made) in enumerate(zip(texts, fitted, strict=True)):
        for piece in text:
            fit(piece, made, line)
    return fitted


def sentences(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """What is to be translated: sentences, each followed by those of its parts."""
    for piece in pieces:
        if not piece.kept:
            yield piece
            yield from sentences(piece.parts)


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
        made = resolve(text.pieces, iter([best[min(rank, len(best) - 1)] for best in lists]))
        chosen = [each for _, each in made if each is not None]
        tokens = tuple(token for each in chosen for token in each.tokens)
        scores = tuple(score for each in chosen for score in each.token_scores)
        score = sum(scores) / max(len(tokens), 1) ** penalty
        notes = tuple(dict.fromkeys([*text.notes, *(note for each in chosen for note in each.notes)]))
        joined.append(Hypothesis("".join(spaced_texts(made, lang)), score, tokens, scores, notes))
    return sorted(joined, key=lambda each: -each.score)


def resolve(pieces: Iterable[Piece], given: Iterator[AnyText]) -> list[tuple[Piece, AnyText | None]]:
    """The pieces with their translations; of a sentence whose translation has lost a literal, its parts.

    :param given: translations of `sentences`
    """
    made: list[tuple[Piece, AnyText | None]] = []
    for piece in pieces:
        if piece.kept:
            made.append((piece, None))
            continue
        whole = next(given)
        parts = resolve(piece.parts, given)
        literals = Counter(part.text for part in piece.parts if part.literal)
        lost = any(len(places(literal, whole.text)) < count for literal, count in literals.items())
        made += parts if lost else [(piece, whole)]
    return made


def places(literal: str, text: str) -> list[int]:
    """Where a text has a literal as a word; of a number with separators, where it would be without them."""
    word = re.compile(rf"(?<!\w){re.escape(literal)}(?!\w)")
    found = word.finditer(text) if word.search(text) else word.finditer(_SEPARATORS.sub("", text))
    return [match.start() for match in found]


def spaced_texts(made: Sequence[tuple[Piece, AnyText | None]], lang: str) -> list[str]:
    """The text of each piece in the translation, with the space between sentences that its language has."""
    texts = [piece.text if best is None else best.text for piece, best in made]
    close = lang.startswith(_NO_SPACE_BETWEEN)
    for index, ((before, _), (after, _)) in enumerate(pairwise(made)):
        if not before.kept and not after.kept and not close:
            texts[index] += " "  # Chinese sentences have no space between them, their translations do
        elif close and before.text == " " and index > 0 and not made[index - 1][0].kept and not after.kept:
            texts[index] = ""
    return texts
