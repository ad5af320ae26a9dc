"""Documents: what people send, cut into sentences to translate and put together again.

    document  ->  sentences  ->  their translations, with alignments where there are tags  ->  document

>>> document = split_document("<p>Guten <b>Morgen</b>!</p>", "html", "de")
>>> document.sentences, document.marked
(['Guten Morgen!'], [True])
>>> document.join(["Good morning!"], [None], "en")
'<p><b>Good morning!</b></p>'

Formats are plain text, HTML, and subtitles (.srt). No torch here: a server splits and joins where no model is.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, compress, pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

from macaron.decode.html_blocks import html_blocks
from macaron.decode.marked_text import MarkedBlock, TextBlock
from macaron.decode.place_tags import Alignment
from macaron.decode.settings import Note
from macaron.errors import MacaronError
from macaron.files import one_line

if TYPE_CHECKING:
    from macaron.decode.translator import Translator

Format = Literal["text", "html", "srt"]
#: The formats of files by their names' endings.
ENDINGS: dict[str, Format] = {".txt": "text", ".html": "html", ".htm": "html", ".srt": "srt"}

_SURROGATE = re.compile("[\ud800-\udfff]")
_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_TIMES = re.compile(r"\s*\d+:\d\d:\d\d[,.]\d+\s*-->")
_DIALOGUE = re.compile(r"(?:<[^<>]*>|\s)*[-–—]")
#: Tags and positions in subtitles; white space; other text.
_SUBTITLE = re.compile(r"</?([a-zA-Z]++)[^<>\r\n]*>|\{[^{}\r\n]*\}|(\s+)|[^<{\s]+|[<{]")
_WORDS = re.compile(r"(?:<[^<>]*>|\{[^{}]*\}|\S)+")
_TAG = re.compile(r"<[^<>]*>|\{[^{}]*\}")


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
        """The translated document.

        :param alignments: of the sentences that are marked; None where there is none
        """
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
