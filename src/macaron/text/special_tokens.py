"""Tokens that are no pieces of text: tags, which mark the corpus of a source; fillers; stand-ins for tokens in text.

A tag is one token in front of a source, ``<law> Der Vertrag ...``: of its domain, of the language to translate into, or
of its origin (back-translated). It has an entry of its own at the end of the vocabulary and is never split. In plain
text ``<law>`` is text.
"""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Tokenizer

from macaron.errors import MacaronError, require
from macaron.text.vocabulary import fillers, specials

if TYPE_CHECKING:
    from macaron.text.tokenizer import MacaronTokenizer

#: Brackets and letters: no subword of the ``raw`` pipeline spans both, so a tag is never a piece of text.
_TAG = re.compile(r"<\w[\w.:+-]*>")


def check_tag(tag: str, where: str = "") -> None:
    """Refuse a tag that is not written as one, or that means something else; `where` begins the message."""
    written = _TAG.fullmatch(tag) is not None and not tag.startswith("<0x")
    require(written, f"{where}tag {tag!r}: write a tag as a word in angle brackets, such as '<law>'")
    require(tag not in specials("encoder"), f"{where}tag {tag!r} is the name of a special token: choose another one")


def with_tags(tokenizer: Tokenizer, tags: Sequence[str], multiple: int = 1) -> Tokenizer:
    """A subword model with fillers, which no text and no merge can reach, and tags at the end of its vocabulary.

    :param multiple: what the size of the vocabulary, fillers and tags included, is to be a multiple of
    """
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
