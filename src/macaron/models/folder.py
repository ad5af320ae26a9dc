"""Model folders, of translation models and encoders alike: found, checked and read."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from macaron.errors import MacaronError
from macaron.models.configuration import EncoderConfig, TranslationConfig

#: What a model of the wrong type cannot do, and the one that is needed.
_NEEDED = {
    TranslationConfig.model_type: "which cannot translate; needed is",
    EncoderConfig.model_type: "which is no encoder of text; needed is an encoder,",
}
#: What encoders have besides the encoder itself: each kind of model has some of it.
ENCODER_HEADS = ("classifier.", "head.", "next_sentence.")
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def find_folder(path: str | Path, model_type: str) -> Path:
    """A model folder of that type: the one that is given, or that of a run. Its files are there, if unread."""
    folder = Path(path)
    if not (folder / "config.json").is_file() and (folder / "model" / "config.json").is_file():
        folder /= "model"
    if not folder.exists():
        raise MacaronError(f"{folder}: no such folder. Give a model folder, such as RUN/model.")
    if not folder.is_dir():
        raise MacaronError(f"{folder}: a file. Give the model folder that it lies in.")
    kind = stored_type(folder)
    if kind != model_type:
        raise MacaronError(f"{folder}: a model of type {kind!r}, {_NEEDED[model_type]} {model_type!r}")
    if not any((folder / name).is_file() for name in _WEIGHTS):
        raise MacaronError(f"{folder}: the weights are missing (model.safetensors). Copy the folder again.")
    if not (folder / "tokenizer.json").is_file():
        raise MacaronError(
            f"{folder}: the tokenizer is missing (tokenizer.json and tokenizer_config.json). It is saved with the "
            "weights: copy the folder again."
        )
    return folder


def stored_type(folder: Path) -> Any:
    """The type of model that a folder's config.json names."""
    config = folder / "config.json"
    if not config.is_file():
        raise MacaronError(
            f"{folder}: not a model folder, it has no config.json. `macaron train` writes one as RUN/model; "
            "`macaron convert` makes one from a foreign checkpoint."
        )
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MacaronError(f"{config}: not valid JSON ({error}). Copy the folder again.") from None
    return content.get("model_type") if isinstance(content, dict) else None


def load_weights(
    folder: Path,
    auto_class: Any,
    dtype: torch.dtype | str = "auto",
    heads: Sequence[str] = (),
    **options: Any,
) -> tuple[Any, list[str]]:
    """A model as transformers reads it, checked to be complete; and what it lacks of its heads.

    :param auto_class: one of transformers' ``AutoModel...``
    :param heads: beginnings of names that may be missing, or be there and not be needed: another task's
    :param options: for ``from_pretrained``; fields of the configuration may be among them
    """
    try:
        with quiet():
            model, report = auto_class.from_pretrained(
                folder, dtype=dtype, use_safetensors=True, local_files_only=True, output_loading_info=True, **options
            )
    except MacaronError as error:
        raise MacaronError(f"{folder / 'config.json'}: {error}") from None
    except Exception as error:  # safetensors and transformers raise nearly anything for a damaged file
        raise MacaronError(
            f"{folder}: the weights cannot be read; the file is damaged or does not fit config.json. Copy the "
            f"folder again. ({first_line(error)})"
        ) from error
    # With ignore_mismatched_sizes what has another shape is reported, and drawn anew like what is missing.
    other_shape = {entry[0] for entry in report.get("mismatched_keys", ())}
    lacking = sorted({*report.get("missing_keys", ()), *other_shape})
    missing = [name for name in lacking if not name.startswith(tuple(heads))]
    unknown = sorted(name for name in report.get("unexpected_keys", ()) if not name.startswith(tuple(heads)))
    if missing or unknown:
        what = f"hold {unknown[0]!r}, which the model has no place for" if unknown else f"lack {missing[0]!r}"
        if missing and missing[0] in other_shape:
            what = f"have {missing[0]!r} in another shape"
        raise MacaronError(
            f"{folder}: the weights {what}. They do not belong to this config.json: copy the folder again."
        )
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise MacaronError(f"{folder}: the weights hold values that are no finite numbers, in {name!r}")
    return model, lacking


def first_line(error: Exception) -> str:
    """What an error of a library says, in short."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and reports of transformers' while loading: what is wrong we say ourselves."""
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
