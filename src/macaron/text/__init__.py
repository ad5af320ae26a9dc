"""Text: normalising, tokenising, subword training, and the tokenizer that travels with a model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from macaron.text.files import read_lines as read_lines
    from macaron.text.pipeline import Moses as Moses
    from macaron.text.pipeline import Pipeline as Pipeline
    from macaron.text.pipeline import Raw as Raw
    from macaron.text.pipeline import Spaces as Spaces
    from macaron.text.pipeline import make_pipeline as make_pipeline
    from macaron.text.tokenizer import MacaronTokenizer as MacaronTokenizer
    from macaron.text.tokenizer import verify as verify
    from macaron.text.vocabulary import read_codes as read_codes
    from macaron.text.vocabulary import read_dictionary as read_dictionary

# The tokenizer needs transformers, which takes seconds to import: each name is loaded when it is asked for.
_HOME = {
    "MacaronTokenizer": "tokenizer",
    "Moses": "pipeline",
    "Pipeline": "pipeline",
    "Raw": "pipeline",
    "Spaces": "pipeline",
    "make_pipeline": "pipeline",
    "read_codes": "vocabulary",
    "read_dictionary": "vocabulary",
    "read_lines": "files",
    "verify": "tokenizer",
}
__all__ = [
    "MacaronTokenizer",
    "Moses",
    "Pipeline",
    "Raw",
    "Spaces",
    "make_pipeline",
    "read_codes",
    "read_dictionary",
    "read_lines",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'macaron.text' has no attribute {name!r}")
    return getattr(import_module(f"macaron.text.{_HOME[name]}"), name)
