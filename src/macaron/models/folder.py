"""Model folders: found, checked and described, without torch and without reading their weights."""

import hashlib
import json
from pathlib import Path
from typing import Any

from macaron.errors import MacaronError
from macaron.models.configuration import EncoderConfig, TranslationConfig

#: Each model type, and what is wrong with a model of another type.
_WRONG_TYPE = {
    TranslationConfig.model_type: "cannot translate",
    EncoderConfig.model_type: "is not a text encoder",
}
CONFIG, GENERATION, WEIGHTS, INDEX = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
)


def find_folder(path: str | Path, model_type: str | None = None) -> Path:
    """The model folder at a path: the folder itself, or that of a run. Its files exist, if unread.

    :param model_type: by default any of ours
    """
    folder = Path(path)
    if not (folder / CONFIG).is_file() and (folder / "model" / CONFIG).is_file():
        folder /= "model"
    if not folder.exists():
        raise MacaronError(f"{folder}: no such folder. Give a model folder, such as RUN/model.")
    if not folder.is_dir():
        raise MacaronError(f"{folder} is a file; give its folder")
    kind = stored_type(folder)
    if kind not in (_WRONG_TYPE if model_type is None else [model_type]):
        wrong = f"{_WRONG_TYPE[model_type]}; expected {model_type!r}" if model_type else "has no splitting scheme"
        raise MacaronError(f"{folder}: a model of type {kind!r} {wrong}")
    if not any((folder / name).is_file() for name in (WEIGHTS, INDEX)):
        raise MacaronError(f"{folder}: the weights are missing ({WEIGHTS}). Copy the folder again.")
    if not (folder / "tokenizer.json").is_file():
        raise MacaronError(
            f"{folder}: the tokenizer is missing (tokenizer.json and tokenizer_config.json). It is saved with the "
            "weights: copy the folder again."
        )
    return folder


def stored_type(folder: Path) -> Any:
    """The type of model that a folder's config.json names."""
    if not (folder / CONFIG).is_file():
        raise MacaronError(
            f"{folder}: not a model folder, it has no config.json. `macaron train` writes one as RUN/model; "
            "`macaron convert` makes one from a foreign checkpoint."
        )
    return read_json(folder / CONFIG).get("model_type")


def load_config(folder: Path, config_class: Any, **changes: Any) -> Any:
    """The configuration of a folder.

    :param config_class: `TranslationConfig` or `EncoderConfig`
    :param changes: fields to set to other values
    """
    try:
        return config_class.from_dict({**read_json(folder / CONFIG), **changes})
    except MacaronError as error:
        raise MacaronError(f"{folder / CONFIG}: {error}") from None


def weights_fingerprint(folder: Path) -> str:
    """A digest of the weights and the configuration of a folder."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), folder / CONFIG]):
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()[:16]


def first_line(error: Exception) -> str:
    """What an error of a library says, in short."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def read_json(path: Path) -> dict[str, Any]:
    """The contents of a JSON file; empty if they are not a record."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MacaronError(f"{path}: not valid JSON ({error}). Copy the folder again.") from None
    return content if isinstance(content, dict) else {}
