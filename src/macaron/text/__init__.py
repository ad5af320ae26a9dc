"""Text: normalising, tokenising, subword training, and the tokenizer that is saved with a model."""

from typing import TYPE_CHECKING

from macaron._lazy import lazy

if TYPE_CHECKING:
    from macaron.text.load_tokenizer import verify
    from macaron.text.pipeline import Moses, Pipeline, Raw, Spaces, make_pipeline
    from macaron.text.tokenizer import MacaronTokenizer
    from macaron.text.vocabulary import read_codes, read_dictionary

__all__ = [
    "MacaronTokenizer",
    "Moses",
    "Pipeline",
    "Raw",
    "Spaces",
    "make_pipeline",
    "read_codes",
    "read_dictionary",
    "verify",
]

__getattr__ = lazy(
    __name__,
    {
        "load_tokenizer": ["verify"],
        "pipeline": ["Moses", "Pipeline", "Raw", "Spaces", "make_pipeline"],
        "tokenizer": ["MacaronTokenizer"],
        "vocabulary": ["read_codes", "read_dictionary"],
    },
)
