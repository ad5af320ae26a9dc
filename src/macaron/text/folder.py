"""The tokenizer of a model folder, checked to be the model's own."""

from pathlib import Path
from typing import Any

from transformers.models.auto.tokenization_auto import AutoTokenizer

from macaron.errors import MacaronError
from macaron.models.folder import first_line, quiet
from macaron.text.tokenizer import MacaronTokenizer, verify
from macaron.text.vocabulary import Kind

_PURPOSE: dict[Kind, str] = {"translation": "translation", "encoder": "encoders"}


def load_tokenizer(folder: Path, kind: Kind) -> MacaronTokenizer:
    """The tokenizer of a folder with a model of that kind."""
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # tokenizers raises nearly anything for a damaged file
        raise MacaronError(
            f"{folder}: the tokenizer cannot be read; copy tokenizer.json and tokenizer_config.json again. "
            f"({first_line(error)})"
        ) from error
    if not isinstance(tokenizer, MacaronTokenizer) or tokenizer.kind != kind:
        raise MacaronError(f"{folder}: the tokenizer is not one for {_PURPOSE[kind]} (see tokenizer_config.json)")
    return tokenizer


def model_tokenizer(folder: Path, kind: Kind, config: Any) -> MacaronTokenizer:
    """The same; refused if it makes other tokens, or other segments, than the model was trained with."""
    tokenizer = load_tokenizer(folder, kind)
    try:
        verify(tokenizer, config)
    except MacaronError as error:
        raise MacaronError(f"{folder}: {error}") from None
    if kind == "encoder" and tokenizer.segments[0] != config.first_segment:
        raise MacaronError(
            f"{folder}: the tokenizer gives the first sentence segment {tokenizer.segments[0]}, the model has "
            f"{config.first_segment} (first_segment in config.json): make them agree"
        )
    return tokenizer
