"""Tokens as labels for a reader, without the marks of the subword model."""

import html

from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import ByteLevel

from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import CONTINUED

#: Marks where a piece is joined to its neighbour: ``unter· richt`` or ``unter ·richt``, depending on the vocabulary.
JOINT = "·"
START = "[start]"
_NAMES = {"<s>": "[s]", "<pad>": "[pad]", "</s>": "[end]", "<unk>": "[unknown]", "<mask>": "[mask]", "<cls>": "[cls]"}


class TokenLabels:
    """The labels of a tokenizer's tokens, by id."""

    def __init__(self, tokenizer: MacaronTokenizer) -> None:
        self.tokenizer = tokenizer
        self.whole_words = isinstance(tokenizer.backend_tokenizer.model, WordLevel)
        self.word_end: str | None = getattr(tokenizer.backend_tokenizer.model, "end_of_word_suffix", None) or None
        self.bytes = _byte_of_character() if tokenizer.pipeline == "raw" else {}

    def __call__(self, token: int) -> str:
        """The label of a token."""
        symbol = self.tokenizer.backend_tokenizer.id_to_token(token)
        if symbol is None:
            return f"[{token}]"  # a row of the embedding beyond the vocabulary
        if symbol in _NAMES:
            return _NAMES[symbol]
        if self.bytes:
            return self._of_bytes(symbol)
        if symbol.startswith("<0x") and symbol.endswith(">"):
            return f"[{symbol[3:-1]}]"
        if self.whole_words:
            text = symbol.removesuffix(CONTINUED) or symbol
            continued = text != symbol
        else:
            continued = self.word_end is not None and not symbol.endswith(self.word_end)
            text = symbol.removesuffix(self.word_end or "")
        text = html.unescape(text) if self.tokenizer.pipeline == "moses" else text
        return text + JOINT if continued else text

    def _of_bytes(self, symbol: str) -> str:
        """The label of a byte-level piece. A piece that starts with a space starts a word."""
        content = bytes(self.bytes[character] for character in symbol if character in self.bytes)
        text = content.decode("utf-8", "replace")
        word = text.strip()
        if not word:
            return "[space]"
        if "\N{REPLACEMENT CHARACTER}" in word or not word.isprintable():  # part of a character
            return f"[{content.hex(' ').upper()}]"
        # A full stop after a word, without a space, is not a piece of it.
        return JOINT + word if word[0].isalnum() and not text[0].isspace() else word


def _byte_of_character() -> dict[str, int]:
    """The characters of a byte-level vocabulary: printable bytes are themselves, the others are shifted."""
    alphabet = sorted(ByteLevel.alphabet())
    printable = [ord(character) for character in alphabet if ord(character) < 256]
    shifted = [code for code in range(256) if code not in printable]
    return dict(zip(alphabet, [*printable, *shifted], strict=True))
