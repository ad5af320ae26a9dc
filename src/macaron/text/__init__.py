"""Text: normalising, tokenising, subword training, and the tokenizer that is saved with a model."""

from typing import TYPE_CHECKING

from macaron import lazy

if TYPE_CHECKING:
    from macaron.text.load_tokenizer import verify as verify
    from macaron.text.tokenizer import MacaronTokenizer as MacaronTokenizer

__getattr__ = lazy(__name__, __file__)
