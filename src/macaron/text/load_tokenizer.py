"""The tokenizer of a model folder, checked to be the model's own by the fingerprint in config.json."""

from pathlib import Path
from typing import Any

from macaron.errors import MacaronError, first_line, naming, require
from macaron.seal import DamagedFile
from macaron.text.fingerprint import agrees
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import TokenizerKind

_PURPOSE: dict[TokenizerKind, str] = {
    "translation": "translation",
    "encoder": "encoders",
    "language": "language models",
}


def load_tokenizer(folder: Path, kind: TokenizerKind, *others: TokenizerKind) -> MacaronTokenizer:
    """The tokenizer of a folder with a model of that kind, or of one of the others."""
    try:
        tokenizer = MacaronTokenizer.from_pretrained(folder)
    except DamagedFile:
        raise
    except MacaronError as error:
        raise MacaronError(f"{folder}: the tokenizer is not one for {_PURPOSE[kind]} ({error})") from None
    except Exception as error:  # tokenizers raises nearly anything for a damaged file
        remedy = "copy tokenizer.json and tokenizer_config.json again"
        raise MacaronError(f"{folder}: the tokenizer cannot be read; {remedy}. ({first_line(error)})") from error
    if tokenizer.kind not in (kind, *others):
        raise MacaronError(f"{folder}: the tokenizer is not one for {_PURPOSE[kind]} (see tokenizer_config.json)")
    return tokenizer


def find_tokenizer(path: Path, kind: TokenizerKind) -> MacaronTokenizer:
    """The tokenizer at a path: a model folder, that of a run, or a prepared folder."""
    for folder in (path, path / "model", path / "tokenizer"):
        if (folder / "tokenizer.json").is_file():
            # Data for encoders train language models, too.
            found = load_tokenizer(folder, kind, "language" if kind == "encoder" else kind)
            return found if found.kind == kind else found.changed(kind=kind)
    raise MacaronError(f"{path}: no tokenizer there (tokenizer.json). Give a model folder, a run or a prepared folder.")


def model_tokenizer(folder: Path, kind: TokenizerKind, config: Any) -> MacaronTokenizer:
    """The same; refused if it makes other tokens, or other segments, than the model was trained with."""
    tokenizer = load_tokenizer(folder, kind)
    with naming(folder):
        verify(tokenizer, config)
    first, wanted = tokenizer.segments[0], getattr(config, "first_segment", 0)
    wrong = f"{folder}: the tokenizer gives the first sentence segment {first}, the model has {wanted}"
    require(kind != "encoder" or first == wanted, f"{wrong} (first_segment in config.json): make them agree")
    return tokenizer


def verify(tokenizer: MacaronTokenizer, config: Any) -> None:
    """Refuse a tokenizer that is not the one a model was trained with (``config`` is the model's)."""
    remedy = "Use the tokenizer files that were saved with the weights."
    sizes = f"the tokenizer has {len(tokenizer)} tokens, the model knows {config.vocab_size}"
    require(len(tokenizer) <= config.vocab_size, f"{sizes}: they do not belong together. {remedy}")
    expected = getattr(config, "tokenizer_fingerprint", None)
    if expected is not None and not agrees(expected, found := tokenizer.fingerprint()):
        other = f"the tokenizer (fingerprint {found[-12:]}) is not the one that this model was trained with"
        raise MacaronError(f"{other} ({expected[-12:]}). {remedy}")
