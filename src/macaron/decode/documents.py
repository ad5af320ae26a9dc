"""Documents: what people send, cut into sentences to translate and put together again.

    document  ->  sentences  ->  their translations, with alignments where there are tags  ->  document

>>> document = split_document("<p>Guten <b>Morgen</b>!</p>", "html", "de")
>>> document.sentences, document.marked
(['Guten Morgen!'], [True])
>>> document.join(["Good morning!"], [None], "en")
'<p><b>Good morning!</b></p>'

Formats are plain text, HTML, and subtitles (.srt). No torch here: a server splits and joins where no model is.

HTML becomes blocks of text with inline tags, found by the tokenizer's rules of the HTML standard. What is not text of a
block is never changed, so nothing has to be understood about it: broken markup stays as broken as it was.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from html import escape, unescape
from itertools import accumulate, compress, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from macaron.decode.marked_text import MarkedBlock, TextBlock
from macaron.decode.place_tags import Alignment
from macaron.decode.settings import Note
from macaron.errors import MacaronError
from macaron.files import one_line
from macaron.settings import load_toml

if TYPE_CHECKING:
    from macaron.decode.translator import Translator

Format = Literal["text", "html", "srt"]
#: The formats of files by their names' endings.
ENDINGS: dict[str, Format] = {".txt": "text", ".html": "html", ".htm": "html", ".srt": "srt"}

_SURROGATE = re.compile("[\ud800-\udfff]")
_PATTERNS: dict[str, str] = load_toml(Path(__file__).with_suffix(".toml"))[0]
_LINE, _TIMES, _DIALOGUE, _WORDS = (re.compile(_PATTERNS[name]) for name in ("line", "times", "dialogue", "words"))
_TAG, _SUBTITLE, _CHARACTERS = (re.compile(_PATTERNS[name]) for name in ("tag", "subtitle", "characters"))
_ATTRIBUTES, _SCRIPT, _SHORT = (re.compile(_PATTERNS[name]) for name in ("attribute", "script", "short"))
_MARKUP = re.compile(_PATTERNS["markup"].replace("ATTRIBUTE", _PATTERNS["attribute"]))
#: Elements by what becomes of them, see html.toml.
_ELEMENTS = {kind: frozenset(names) for kind, names in load_toml(Path(__file__).with_name("html.toml"))[0].items()}


class Document:
    """A document in sentences."""

    def __init__(self, text: str, blocks: Sequence[TextBlock]) -> None:
        self.text, self.blocks = text, blocks
        #: What is to be translated, each as one sentence.
        self.sentences: list[str] = []
        #: Which of them have tags inside, whose place an alignment decides.
        self.marked: list[bool] = []
        for block in blocks:
            at = 0
            for piece in block.pieces:
                if not piece.kept:
                    self.sentences.append(piece.text)
                    self.marked.append(block.marked(at, piece))
                at += len(piece.original)

    def join(self, translations: Sequence[str], alignments: Sequence[Alignment | None], lang: str = "") -> str:
        """The translated document; the alignments, or None, are those of the sentences that are marked."""
        if not len(translations) == len(alignments) == len(self.sentences):
            raise ValueError(f"{len(self.sentences)} sentences, but {len(translations)} translations")
        texts, found = iter(translations), iter(alignments)
        parts: list[str] = []
        cursor = 0
        for block in self.blocks:
            parts += [self.text[cursor : block.start], block.join(texts, found, lang)]
            cursor = block.end
        return "".join([*parts, self.text[cursor:]])


def split_document(text: str, format: Format = "text", lang: str = "en") -> Document:
    """Split a document, which is in this language, into sentences."""
    if format not in get_args(Format):
        raise MacaronError(f"the format of a document is one of {', '.join(get_args(Format))}, not {format!r}")
    wrong = _SURROGATE.search(text)
    if wrong is not None:
        raise MacaronError(f"the text is not valid Unicode: character {wrong.start() + 1:,} is a lone surrogate")
    blocks: Sequence[TextBlock] = [TextBlock(text, 0, len(text))]
    if format != "text":
        blocks = html_blocks(text) if format == "html" else srt_blocks(text)
    for block in blocks:
        block.split(lang)
    return Document(text, blocks)


class Subtitle(MarkedBlock):
    """The text of a subtitle, broken into as many lines as it had."""

    lines = 1

    def join(self, texts: Iterator[str], alignments: Iterator[Alignment | None], lang: str) -> str:
        """The translated text in lines of similar length."""
        joined = super().join(texts, alignments, lang)
        before = self.document[self.start : self.end]
        if self.lines == 1 or joined == before:
            return joined
        words = _WORDS.findall(joined)
        lengths = [len(_TAG.sub("", word)) for word in words]
        middles = [end - length / 2 for end, length in zip(accumulate(lengths), lengths, strict=True)]
        lines = list(_LINE.finditer(before))
        one = sum(lengths) + len(lengths) <= max(len(_TAG.sub("", line[1])) for line in lines)
        width = sum(lengths) / (1 if one else self.lines)
        ends = {bisect_left(middles, width * line) for line in range(1, self.lines)}
        return lines[0][2].join(" ".join(words[a:b]) for a, b in pairwise(sorted({0, len(words)} | ends)))


def srt_blocks(document: str) -> list[TextBlock]:
    """The texts of subtitles: lines of one cue, but a line that begins with a dash is another speaker's."""
    blocks: list[TextBlock] = []
    block: Subtitle | None = None
    lines = [match for match in _LINE.finditer(document) if match[0]]
    begun = False
    for index, line in enumerate(lines):
        begun = begun or _TIMES.match(line[1]) is not None
        number = line[1].strip().isdigit() and index + 1 < len(lines) and _TIMES.match(lines[index + 1][1])
        if not begun or number or not line[1].strip() or _TIMES.match(line[1]):
            block = None
            continue
        if block is None or _DIALOGUE.match(line[1]):
            block = Subtitle(document, line.start(), one_line)
            blocks.append(block)
        else:
            block.lines += 1
            block.add(" ", block.end, line.start())
        for part in _SUBTITLE.finditer(document, line.start(), line.end(1)):
            if part[1] or (part[0][0] == "{" and len(part[0]) > 1):
                closing = part[0][1] == "/"
                block.add_tag(part.start(), part.end(), (part[1] or "").lower(), closing)
            else:
                block.add(part[0], part.start(), part.end())
        block.end = line.end(1)
    return blocks


class Token(NamedTuple):
    """A part of a document: text (without a name), a tag, or markup that is neither (its name is ``!``)."""

    start: int
    end: int
    name: str = ""
    closing: bool = False
    attributes: str = ""


def html_blocks(document: str) -> list[MarkedBlock]:
    """The blocks of an HTML document or fragment that have text to translate."""
    make = partial(MarkedBlock, document, escape=partial(escape, quote=False))
    blocks = [make(0)]
    tokens = _tokens(document)
    for token in tokens:
        block, end = blocks[-1], token.end
        inline = token.name in _ELEMENTS["inline"]
        if not token.name:
            for part in _characters(document, token):
                block.add(*part)
        elif token.name == "!":
            block.add_tag(token.start, end)
        elif not token.closing and _is_untouched(token):
            text, end = _skip(document, token, tokens)
            if inline and not text:
                block.add_tag(token.start, end)
            elif inline and _SHORT.fullmatch(text):
                block.add_literal(text, token.start, end)
            else:
                blocks.append(make(end))
        elif inline:
            block.add_tag(token.start, end, "" if token.name in _ELEMENTS["void"] else token.name, token.closing)
        else:
            blocks.append(make(end))
        block.end = end
    return [block for block in blocks if block.letters]


def _tokens(document: str) -> Iterator[Token]:
    at = 0
    while (found := _MARKUP.search(document, at)) is not None:
        if at < found.start():
            yield Token(at, found.start())
        name, closing = (found["name"] or "!").lower(), bool(found["close"])
        yield Token(found.start(), found.end(), name, closing, found["attributes"] or "")
        at = found.end()
        if name in _ELEMENTS["raw"] and not closing:
            end = _end_of_raw(document, name, at)
            if at < end:
                yield Token(at, end, "" if name == "title" else "!")
            at = end
    if at < len(document):
        yield Token(at, len(document))


def _end_of_raw(document: str, name: str, at: int) -> int:
    """Where the content of an element ends that is not markup. Inside a comment, a script may have scripts."""
    if name != "script":
        end = re.compile(rf"</{name}(?=[ \t\n\f\r/>])", re.IGNORECASE).search(document, at)
        return len(document) if end is None or name == "plaintext" else end.start()
    comment = inner = False
    for found in _SCRIPT.finditer(document, at):
        if found[1] is None:
            comment, inner = found[0] == "<!--", False
        elif found[1] and not inner:
            return found.start()
        else:
            inner = comment and not found[1]
    return len(document)


def _is_untouched(token: Token) -> bool:
    if token.name in _ELEMENTS["untouched"]:
        return True
    if token.name in _ELEMENTS["void"] or "translate" not in token.attributes.lower():
        return False
    # The first of several attributes with one name counts.
    found = {name.lower(): value.strip("\"'") for name, value in reversed(_ATTRIBUTES.findall(token.attributes))}
    return found.get("translate", "").lower() == "no" or "notranslate" in found.get("class", "").split()


def _skip(document: str, opened: Token, tokens: Iterator[Token]) -> tuple[str, int]:
    """The text of an element that stays as it is, and the element's end."""
    depth, end = 1, opened.end
    letters: list[str] = []
    for token in tokens:
        end = token.end
        if not token.name:
            letters += [text for text, _, _ in _characters(document, token)]
        elif token.name == opened.name:
            depth += -1 if token.closing else 1
        if not depth:
            break
    return " ".join("".join(letters).split()), end


def _characters(document: str, token: Token) -> Iterator[tuple[str, int, int]]:
    for part in _CHARACTERS.finditer(document, token.start, token.end):
        text = part[0]
        yield unescape(text) if text[0] == "&" else text, part.start(), part.end()


def translate_document(
    translator: "Translator", text: str, format: Format = "text", **options: Any
) -> tuple[str, list[tuple[Note, ...]]]:
    """A document in another language, and what is to be noted about each of its sentences."""
    document = split_document(text, format, translator.tokenizer.source_lang or "en")
    found = [best[0] for best in translator.translate_nbest(document.sentences, nbest=1, bound=True, **options)]
    texts = [each.text for each in found]
    aligned = iter(translator.align(*(list(compress(each, document.marked)) for each in (document.sentences, texts))))
    alignments = [next(aligned) if marked else None for marked in document.marked]
    joined = document.join(texts, alignments, translator.tokenizer.target_lang or "")
    return joined, [each.notes for each in found]
