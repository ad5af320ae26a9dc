"""Tokens as a reader wants to see them."""

import html

from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import ByteLevel

from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import CONTINUED, SPACE_END, WORD_END, specials

#: Stands where a piece of a word is joined to its neighbour: ``unter· richt``, or ``unter ·richt``, as the vocabulary
#: has it.
JOINT = "·"
START = "[start]"
_NAMES = {"<s>": "[s]", "<pad>": "[pad]", "</s>": "[end]", "<unk>": "[unknown]", "<mask>": "[mask]", "<cls>": "[cls]"}


class Words:
    """The names of a tokenizer's tokens, without the marks of its subword model."""

    def __init__(self, tokenizer: MacaronTokenizer) -> None:
        self.tokenizer = tokenizer
        self.specials = len(specials(tokenizer.kind))
        self.whole_words = isinstance(tokenizer.backend_tokenizer.model, WordLevel)
        suffix = getattr(tokenizer.backend_tokenizer.model, "end_of_word_suffix", None)
        self.word_end: str | None = suffix if suffix in (WORD_END, SPACE_END) else None
        self.bytes = _byte_of_letter() if tokenizer.pipeline == "raw" else {}
        self.escaped = tokenizer.pipeline == "moses"

    def __call__(self, token: int) -> str:
        """The name of a token."""
        symbol = self.tokenizer.backend_tokenizer.id_to_token(token)
        if symbol is None:
            return f"[{token}]"  # a row of the model's table beyond the vocabulary
        if token < self.specials:
            return _NAMES.get(symbol, symbol)
        if self.bytes:
            return self._of_bytes(symbol)
        if symbol.startswith("<0x") and symbol.endswith(">"):
            return f"[{symbol[3:-1]}]"
        if self.whole_words:
            continued = symbol.endswith(CONTINUED) and symbol != CONTINUED
            text = symbol.removesuffix(CONTINUED) if continued else symbol
        else:
            continued = self.word_end is not None and not symbol.endswith(self.word_end)
            text = symbol if continued or self.word_end is None else symbol.removesuffix(self.word_end)
        text = html.unescape(text) if self.escaped else text
        return text + JOINT if continued else text

    def _of_bytes(self, symbol: str) -> str:
        """A byte-level piece: it begins a word if a space comes with it."""
        content = bytes(self.bytes[letter] for letter in symbol if letter in self.bytes)
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            return f"[{content.hex(' ').upper()}]"  # part of a character
        word = text.strip()
        if not word:
            return "[space]"
        if not word.isprintable():
            return f"[{content.hex(' ').upper()}]"
        # A full stop that follows a word without a space is no piece of it.
        return JOINT + word if word[0].isalnum() and not text[0].isspace() else word


def _byte_of_letter() -> dict[str, int]:
    """The letters that stand for bytes in a byte-level vocabulary: printable ones for themselves, others moved up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [code for code in range(256) if code not in printable]
    table = {chr(code): code for code in printable} | {chr(256 + i): code for i, code in enumerate(moved)}
    assert set(table) == set(ByteLevel.alphabet())
    return table
