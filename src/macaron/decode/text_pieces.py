"""Text in pieces: sentences to translate, and the text that is kept between them.

    text  ->  pieces  ->  translations of the sentences  ->  text

Kept are white space, tabs between cells, line breaks, list marks, and what has no words: numbers, rules, addresses.
Lines of a file, cells of a table and paragraphs of a document all go this way.

Addresses, emoji and the digits of long numbers inside a sentence come through unchanged: a letter stands for an
address while the sentence is translated, an emoji is taken out, and both are put back where the alignment of the words
says.
"""

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, zip_longest
from typing import Literal as OneOf
from typing import NamedTuple

from macaron.decode.place_tags import PATTERNS, Alignment, Element, is_number, place_tags
from macaron.decode.settings import Hypothesis, Note
from macaron.errors import MacaronError
from macaron.text.pipeline import State
from macaron.text.sentence_splitter import SPACELESS, abbreviations, splitter

_BREAK, _BULLET, _MARKS = (re.compile(PATTERNS[name]) for name in ("break", "bullet", "marks"))
_LAST_NUMBER, _FIRST_WORD = (re.compile(PATTERNS[name]) for name in ("last_number", "first_word"))
_LITERAL = re.compile(f"{PATTERNS['literal']}|{PATTERNS['number']}")
#: Boundaries to cut a long sentence at, best first.
_BOUNDARIES = [re.compile(PATTERNS[name]) for name in ("sentence", "clause", "word")]
#: What stands for an address, in this order: models have met it as a name.
_LETTERS = "XYZQWVKJ"
#: Languages that are written without a space between sentences.
_NO_SPACE_BETWEEN = ("zh", "ja")
Aligner = Callable[[list[str], list[str]], Sequence[Alignment | None]]
LongLines = OneOf["split", "refuse", "truncate"]
END = 1  # `</s>`, which every source ends with


class Literal(NamedTuple):
    """A part of a sentence that its translation has unchanged: an address, an emoji, a long number, code.

    :param at: its place in the sentence as it was; ``text`` is what stood there
    :param start: where in the sentence that is translated something short stands for it, or nothing; ``end`` likewise
    """

    at: int
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Piece:
    """A part of a text: a sentence to translate, its white space normalised, or text that is kept as it is.

    :param source: the sentence as it was, if it has literals
    :param parts: what it is cut into, if it is too long
    """

    text: str
    kept: bool = False
    literals: tuple[Literal, ...] = ()
    source: str = ""
    parts: tuple["Piece", ...] = ()

    @property
    def original(self) -> str:
        """The sentence as it was."""
        return self.source or self.text


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
    """The sentences of a text and what is between them: together the text, but for white space inside sentences.

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
    found = deque(_LITERAL.finditer(sentence))
    start, end = 0, len(sentence)
    while found and found[0]["sign"] and not _has_words(sentence[start : found[0].start()]):
        start = found.popleft().end()
    while found and found[-1]["sign"] and not _has_words(sentence[found[-1].end() : end]):
        end = found.pop().start()
    inner = with_literals(sentence[start:end], [(each.start() - start, each.end() - start) for each in found])
    return [Piece(sentence[:start], kept=True), *inner, Piece(sentence[end:], kept=True)]


def with_literals(sentence: str, spans: Sequence[tuple[int, int]]) -> list[Piece]:
    """A sentence whose literals are put back later, and the space around it; cut at them if they are many."""
    between = [sentence[end:start] for (_, end), (start, _) in pairwise([(0, 0), *spans, (len(sentence), 0)])]
    if not _has_words("".join(between)):
        return [Piece(sentence, kept=True)]
    letters = [letter for letter in _LETTERS if letter not in sentence]
    if len(spans) > len(letters):
        kept = [Piece(sentence[start:end], kept=True) for start, end in spans]
        return [piece for text, literal in zip_longest(between, kept) for piece in (*_spaced(text), literal) if piece]
    left, words, right = _spaced(sentence)
    text, end, literals = "", len(left.text), []
    for start, stop in spans:
        literal = sentence[start:stop]
        word = any(map(str.isalnum, literal)) or start == len(left.text) or stop == len(sentence) - len(right.text)
        stand_in = literal if is_number(literal) else letters.pop(0) if word else ""
        # Of two spaces around an emoji one goes with it.
        wide = not stand_in and sentence[start - 1 : start].isspace() and sentence[stop : stop + 1] == " "
        text += sentence[end:start]
        end = stop + wide
        literals.append(Literal(start - len(left.text), sentence[start:end], len(text), len(text) + len(stand_in)))
        text += stand_in
    text += sentence[end : len(sentence) - len(right.text)]
    return [left, Piece(text, literals=tuple(literals), source=words.text) if literals else words, right]


def _spaced(text: str) -> list[Piece]:
    words = text.strip()
    left = len(text) - len(text.lstrip())
    kept = not _has_words(words)
    return [Piece(text[:left], kept=True), Piece(words, kept), Piece(text[left + len(words) :], kept=True)]


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
    ordinal = number is not None and word is not None and word[0] in abbreviations(lang)["ordinals"]
    return cell[number.start() if number is not None and ordinal else marks.end() :]


def _spaces_after(text: str, sentences: Sequence[str]) -> list[str]:
    """The white space after each sentence of a text, whose sentences differ from it in white space only."""
    places = [index for index, letter in enumerate(text) if not letter.isspace()] + [len(text)]
    ends = accumulate(len(sentence) - sentence.count(" ") for sentence in sentences)
    return [text[places[end - 1] + 1 : places[end]] for end in ends]


def parts_that_fit(text: str, fits: Callable[[str], bool]) -> list[Piece]:
    """Cut a sentence into parts that fit, each at the best kind of boundary, as near to the middle as possible.

    A word that does not fit is kept, untranslated: it is no word of a language. Scripts without spaces are cut
    anywhere. The text has no white space at its ends.
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
    end = bisect_left(range(1, len(text) + 1), True, key=lambda end: not fits(text[:end]))
    words = text[:end] if end == len(text) or text[end].isspace() else text[:end].rpartition(" ")[0]
    return [Piece(words.rstrip() or text[:end])]


def _cut(text: str) -> int | None:
    for boundary in _BOUNDARIES:
        # The text has no white space at its ends: both sides of a cut inside are non-empty.
        inside = [match.end() for match in boundary.finditer(text) if match.end() < len(text)]
        if inside:
            return min(inside, key=lambda at: abs(at - len(text) / 2))
    return len(text) // 2 if SPACELESS.search(text) else None


def fit_texts(
    texts: Sequence[Sequence[Piece]],
    encode: Callable[[list[str]], list[list[int]]],
    longest: int,
    long_lines: LongLines,
    first_line: int = 1,
) -> list[FittedText]:
    """Encode the sentences of texts (ids, each with its end), and cut those of more than ``longest`` tokens."""
    encoded = iter(encode([piece.text for text in texts for piece in text if not piece.kept]))
    fitted = [FittedText([], [], []) for _ in texts]
    for index, (text, made) in enumerate(zip(texts, fitted, strict=True)):
        for piece in text:
            ids = [] if piece.kept else next(encoded)
            if len(ids) <= END:  # kept, or nothing that the tokenizer knows
                made.pieces.append(Piece(piece.original, kept=True))
            elif len(ids) <= longest + END:
                made.pieces.append(piece)
                made.sources.append(ids)
            elif long_lines == "refuse":
                said = f"line {first_line + index} has a sentence of {len(ids) - END} tokens, more than {longest}"
                raise LineRefused(f"{said}: shorten it or split such sentences (--long-lines split)", index)
            else:
                cut = parts_that_fit if long_lines == "split" else longest_start
                parts = cut(piece.text, lambda part: len(encode([part])[0]) <= longest + END)
                made.pieces.append(replace(piece, parts=tuple(parts)))
                made.sources.extend(encode([part.text for part in parts if not part.kept]))
                words = any(part.kept and part.text != " " for part in parts)
                made.notes.append("long word" if words else "long sentence")
    return fitted


def join_pieces(
    text: FittedText, lists: Sequence[list[Hypothesis]], penalty: float, lang: str, align: Aligner
) -> list[Hypothesis]:
    """The translations of a text from those of its sentences: the n-th joins the n-th best of each.

    :param lists: the hypotheses of each sentence, best first; one sentence alone keeps its own
    :param align: sentences and translations, for sentences that have literals
    """
    if len(text.pieces) == len(lists) == 1 and not text.notes and not text.pieces[0].literals:
        return lists[0]
    joined: list[Hypothesis] = []
    for rank in range(max(map(len, lists), default=1)):
        chosen = [best[min(rank, len(best) - 1)] for best in lists]
        tokens = tuple(token for each in chosen for token in each.tokens)
        scores = tuple(score for each in chosen for score in each.token_scores)
        score = sum(scores) / max(len(tokens), 1) ** penalty
        notes = tuple(dict.fromkeys([*text.notes, *(note for each in chosen for note in each.notes)]))
        given = (each.text for each in chosen)
        texts = []
        for piece in text.pieces:
            if not piece.kept:
                made = "".join(spaced_texts(piece.parts or [piece], given, lang))
                texts.append(restore(piece, made, align([piece.text], [made])[0] if piece.literals else None))
        joined.append(Hypothesis("".join(spaced_texts(text.pieces, iter(texts), lang)), score, tokens, scores, notes))
    return sorted(joined, key=lambda each: -each.score)


def restore(piece: Piece, translation: str, alignment: Alignment | None) -> str:
    """A translation with the literals of its sentence."""
    if not piece.literals:
        return translation
    if translation == piece.text:
        return piece.source
    elements = [Element(each.start, each.end, each.text.strip(), literal=True) for each in piece.literals]
    return place_tags(piece.text, translation, alignment, elements)


def spaced_texts(pieces: Sequence[Piece], given: Iterator[str], lang: str) -> list[str]:
    """The text of each piece in a translation, with the space between sentences that its language has."""
    texts = [piece.text if piece.kept else next(given) for piece in pieces]
    close = lang.startswith(_NO_SPACE_BETWEEN)
    for index, (before, after) in enumerate(pairwise(pieces)):
        if not before.kept and not after.kept and not close:
            texts[index] += " "  # Chinese sentences have no space between them, their translations do
        elif close and before.text == " " and index > 0 and not pieces[index - 1].kept and not after.kept:
            texts[index] = ""
    return texts


def sentence_at(text: str, before: int, lang: str) -> str:
    """The sentence of a text that the cursor is in or behind, after so many characters but white space."""
    seen, found = 0, ""
    for piece in text_pieces(text, lang):
        if not piece.kept and (not found or seen < before):
            found = piece.text
        seen += len("".join(piece.text.split()))
    return found or " ".join(text.split())
