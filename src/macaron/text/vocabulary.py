"""Special tokens and their ids, tags among them; fairseq's ``dict.txt`` and subword-nmt's codes files.

A tag is one token in front of a source, ``<law> Der Vertrag ...``, with an entry of its own at the end of the
vocabulary. In plain text ``<law>`` is text.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tokenizers import AddedToken, Tokenizer

from macaron.errors import MacaronError, require
from macaron.files import read_lines
from macaron.limits import LARGEST_VOCABULARY, Between

if TYPE_CHECKING:
    from macaron.text.tokenizer import MacaronTokenizer

TokenizerKind = Literal["translation", "encoder", "language"]

#: Index 0 is an ordinary class that no text produces: fairseq's dictionaries have one there, and so the ids
#: agree. There is no begin-of-sentence token; a decoder starts with ``</s>``.
SPECIALS: dict[TokenizerKind, tuple[str, ...]] = {
    "translation": ("<s>", "<pad>", "</s>", "<unk>"),
    "encoder": ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<cls>"),
    # The same data train encoders and language models.
    "language": ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<cls>"),
}
PAD, EOS, UNK, MASK, CLS = 1, 2, 3, 4, 5
#: What a byte-level vocabulary begins with, so that no text is unknown to it.
BYTES = 256

#: Vocabularies of words of this size or more are complete: they have byte tokens (see `byte_tokens`).
COMPLETE_SIZE = 1000
#: Printable ASCII, always included in complete vocabularies, inside a word and at its end.
PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))

#: subword-nmt writes a piece that does not end its word with this suffix.
CONTINUED = "@@"
#: Inside a BPE the mark is on the other pieces: those that end a word. This is subword-nmt's.
WORD_END = "</w>"
#: In a BPE that we train it is the space itself: with a letter that is spelled in bytes it is one more byte.
SPACE_END = " "

#: How the names of entries begin that no text reaches.
FILLER = "madeupword"

CODES_HEADER = "#version: 0.2"

#: Brackets and letters: no subword of the ``raw`` pipeline spans both, so a tag is never a piece of text.
_TAG = re.compile(r"<\w[\w.:+-]{0,61}>")


def specials(kind: TokenizerKind) -> tuple[str, ...]:
    """Return the special tokens of a kind of model, in the order of their ids."""
    if kind not in SPECIALS:
        raise MacaronError(f"unknown kind of tokenizer {kind!r}: choose one of {', '.join(SPECIALS)}")
    return SPECIALS[kind]


def byte_tokens() -> list[str]:
    """Return the names (as in `tokenizers`) of the bytes that spell what a complete vocabulary has no entry for."""
    # All of UTF-8 but printable ASCII, and the space. 0xC0, 0xC1 and those from 0xF5 on are in no valid text.
    codes = (*range(0x21), *range(0x7F, 0xC0), *range(0xC2, 0xF5))
    return [f"<0x{code:02X}>" for code in codes]


def check_size(vocab_size: int, raw: bool, kind: TokenizerKind = "translation") -> None:
    """Refuse a vocabulary that is too small for its alphabet (of bytes if raw, else of two letters), or too large."""
    Between(0, LARGEST_VOCABULARY).check("the vocabulary", vocab_size)
    smallest = len(specials(kind)) + (BYTES if raw else 2)
    if vocab_size < smallest:
        kind_of, why = (" byte-level", f" ({BYTES} bytes and the special tokens)") if raw else ("", "")
        raise MacaronError(f"a{kind_of} vocabulary needs at least {smallest} entries{why}, not {vocab_size}")


def chosen_size(words: int, kind: TokenizerKind = "translation") -> tuple[int, str]:
    """The size of a vocabulary for a corpus of so many words (both sides), and why; measured in docs/choices.md."""
    sizes = (4_000, 10_000, 32_000) if kind == "translation" else (8_000, 16_000, 32_000)
    limits = (5_000_000, 50_000_000) if kind == "translation" else (10_000_000, 40_000_000)
    size = sizes[sum(words >= limit for limit in limits)]
    return size, f"chosen for {words:,} words of training text; another with --vocab-size or data.vocab_size"


def fillers(size: int, multiple: int, first: int = 0) -> list[str]:
    """Return the names, numbered from `first`, that pad a vocabulary of ``size`` to a multiple, as fairseq has them."""
    return [f"{FILLER}{i:04d}" for i in range(first, first + -size % multiple)]


def check_tag(tag: str, where: str = "") -> None:
    """Refuse a tag that is not written as one, or that means something else; `where` begins the message."""
    written = _TAG.fullmatch(tag) is not None and not tag.startswith("<0x")
    require(written, f"{where}tag {tag!r}: write a tag as a word in angle brackets, such as '<law>'")
    require(tag not in specials("encoder"), f"{where}tag {tag!r} is the name of a special token: choose another one")


def with_tags(tokenizer: Tokenizer, tags: Sequence[str], multiple: int = 1) -> Tokenizer:
    """A subword model with fillers, which no text and no merge can reach, and then tags; its size is a multiple."""
    for tag in tags:
        check_tag(tag)
        if tokenizer.token_to_id(tag) is not None:
            raise MacaronError(f"the text has words with {tag!r}: choose another name for this tag")
    if extra := fillers(tokenizer.get_vocab_size() + len(tags), multiple):
        content = json.loads(tokenizer.to_str())
        vocabulary = content["model"]["vocab"]
        for name in extra:
            vocabulary[name] = len(vocabulary)
        tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.add_special_tokens(tag_tokens(tags))
    return tokenizer


def tag_tokens(tags: Sequence[str]) -> list[AddedToken]:
    """Tags as special tokens."""
    # A tag that is to be recognised in a text takes the space before it along: what follows is as without it.
    return [AddedToken(tag, special=True, normalized=False, lstrip=True) for tag in tags]


def tag_ids(tokenizer: "MacaronTokenizer", tag: str | None) -> list[int]:
    """What stands in front of a source with this tag: the id of the tag, or nothing."""
    if tag is None:
        return []
    index = tokenizer.backend_tokenizer.token_to_id(tag) if tag in tokenizer.tags else None
    if index is None:
        known = f"knows {', '.join(tokenizer.tags)}" if tokenizer.tags else "was trained without tags"
        raise MacaronError(f"unknown tag {tag!r}: this model {known}")
    return [index]


def stand_ins(text: str, tokens: Sequence[str]) -> tuple[str, dict[str, str]]:
    """A text in which words that Moses leaves alone stand for these tokens, and the token of each word."""
    words: dict[str, str] = {}
    for index, token in enumerate(tokens):
        if token in text:
            word = f"zqx{index}xqz"
            while word in text.lower():
                word += "z"
            text = text.replace(token, word)
            words[word] = token
    return text, words


def read_dictionary(path: str | Path, kind: TokenizerKind = "translation", pad_to_multiple: int = 1) -> list[str]:
    """Read a fairseq ``dict.txt`` (lines ``token count``) and return all tokens, specials first, by id.

    fairseq pads a dictionary when it *writes* it; no padding gives the size a checkpoint was trained with.
    """
    tokens = list(specials(kind))
    first_line = dict.fromkeys(tokens, 0)
    for number, line in enumerate(read_lines(path), start=1):
        token, _, count = line.rpartition(" ")
        where = f"{path}, line {number}"
        if not count.strip().isdecimal() or not token or " " in token:
            raise MacaronError(f"{where}: expected 'token count', found {line!r}. Is this a fairseq dict.txt?")
        if token in first_line:
            seen = f"line {first_line[token]}" if first_line[token] else "the special tokens, which are implicit"
            raise MacaronError(f"{where}: {token!r} is there twice (see {seen}). Remove one of the two.")
        first_line[token] = number
        tokens.append(token)
    require(len(tokens) != len(specials(kind)), f"{path}: no tokens in this dictionary. Expected lines 'token count'.")
    return tokens + fillers(len(tokens), pad_to_multiple)


def read_codes(path: str | Path) -> list[tuple[str, str]]:
    """Read a subword-nmt codes file (version 0.2) and return its merges by rank."""
    lines = read_lines(path)
    header = next(lines, "")  # there is none in version 0.1, where the same merges mean other segmentations
    wrong = f"{path}, line 1: expected {CODES_HEADER!r}, found {header[:40]!r}"
    remedy = (
        "Codes of other versions segment words differently; learn them again with a current subword-nmt (learn-bpe)."
    )
    require(header.split() == CODES_HEADER.split(), f"{wrong}. {remedy}")
    merges: dict[tuple[str, str], None] = {}
    for number, line in enumerate(lines, start=2):
        left, _, right = line.strip("\r ").partition(" ")
        if not left or not right or " " in right:
            raise MacaronError(f"{path}, line {number}: expected two symbols, found {line!r}")
        if WORD_END in left or WORD_END in right.removesuffix(WORD_END):
            raise MacaronError(f"{path}, line {number}: {WORD_END} may only end a merge, found {line!r}")
        merges.setdefault((left, right))  # of a repeated merge the first counts
    require(bool(merges), f"{path}: no merges after the version line")
    return list(merges)


def bpe_symbol(token: str) -> str:
    """Return the BPE's name of a dictionary entry: ``foo@@`` is ``foo``, ``foo`` is ``foo</w>``."""
    return token[: -len(CONTINUED)] if token.endswith(CONTINUED) and token != CONTINUED else token + WORD_END


def ghost_ids(tokenizer: Tokenizer, size: int) -> dict[int, int]:
    """Map every id from `size` on to the id a dictionary look-up gives for its piece, mostly ``<unk>``."""
    by_id = {index: symbol for symbol, index in tokenizer.get_vocab().items()}
    ghosts = {}
    for index in range(size, len(by_id)):
        symbol = by_id[index]
        # A word that itself ends in "@@" reads like a continued piece in the dictionary: the same entry.
        word = symbol.removesuffix(WORD_END) if symbol.endswith(WORD_END) else symbol + CONTINUED
        twin = tokenizer.token_to_id(bpe_symbol(word))
        ghosts[index] = twin if twin is not None and twin < size else UNK
    return ghosts
