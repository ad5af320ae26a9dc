"""Opening a model folder for translation."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers.models.auto.modeling_auto import AutoModelForSeq2SeqLM
from transformers.models.auto.tokenization_auto import AutoTokenizer
from transformers.utils import logging

from macaron.errors import MacaronError
from macaron.models.configuration import TranslationConfig
from macaron.models.translation import TranslationModel
from macaron.text.tokenizer import MacaronTokenizer, verify

_DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_folder(path: str | Path) -> tuple[TranslationModel, MacaronTokenizer]:
    """The model and the tokenizer of a folder, checked to belong together. A run's folder stands for its model."""
    folder = Path(path)
    if not (folder / "config.json").is_file() and (folder / "model" / "config.json").is_file():
        folder /= "model"
    _check_files(folder)
    model = _load_model(folder)
    tokenizer = _load_tokenizer(folder)
    try:
        verify(tokenizer, model.config)
    except MacaronError as error:
        raise MacaronError(f"{folder}: {error}") from None
    return model, tokenizer


def choose_device(name: str | torch.device) -> torch.device:
    """The device of that name; ``auto`` is the GPU if there is one."""
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise MacaronError(f"no device {name!r}: choose auto, cpu, cuda or cuda:0, cuda:1, ...") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise MacaronError(f"device {name}: this machine has {torch.cuda.device_count()} usable GPUs; try --device cpu")
    return device


def choose_dtype(name: str | torch.dtype) -> torch.dtype:
    """The number format of that name."""
    dtype = _DTYPES.get(name) if isinstance(name, str) else name
    if dtype not in _DTYPES.values():
        raise MacaronError(f"no number format {name!r}: choose one of {', '.join(_DTYPES)}")
    assert dtype is not None
    return dtype


def int8_precision(device: torch.device, dtype: str | torch.dtype | None) -> torch.dtype:
    """The number format beside int8, which is for matrices on the CPU."""
    if device.type != "cpu":
        raise MacaronError(f"int8 is for the CPU, not for {device}: leave --int8 out, or choose --device cpu")
    if dtype is not None and choose_dtype(dtype) != torch.float32:
        raise MacaronError(f"int8 goes with float32, not with {dtype}: leave out --int8 or --dtype")
    return torch.float32


def _check_files(folder: Path) -> None:
    if not folder.exists():
        raise MacaronError(f"{folder}: no such folder. Give a model folder, such as RUN/model.")
    if not folder.is_dir():
        raise MacaronError(f"{folder}: a file. Give the model folder that it lies in.")
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
    kind = content.get("model_type") if isinstance(content, dict) else None
    if kind != TranslationConfig.model_type:
        raise MacaronError(
            f"{folder}: a model of type {kind!r}, which cannot translate; needed is {TranslationConfig.model_type!r}"
        )
    if not any((folder / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json")):
        raise MacaronError(f"{folder}: the weights are missing (model.safetensors). Copy the folder again.")
    if not (folder / "tokenizer.json").is_file():
        raise MacaronError(
            f"{folder}: the tokenizer is missing (tokenizer.json and tokenizer_config.json). It is saved with the "
            "weights: copy the folder again."
        )


def _load_model(folder: Path) -> TranslationModel:
    try:
        with _quiet():
            loaded: tuple[Any, dict[str, Any]] = AutoModelForSeq2SeqLM.from_pretrained(
                folder, dtype="auto", use_safetensors=True, local_files_only=True, output_loading_info=True
            )
    except MacaronError as error:
        raise MacaronError(f"{folder / 'config.json'}: {error}") from None
    except Exception as error:  # safetensors and transformers raise nearly anything for a damaged file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise MacaronError(
            f"{folder}: the weights cannot be read; the file is damaged or does not fit config.json. Copy the "
            f"folder again. ({reason[:200]})"
        ) from error
    model, report = loaded
    missing = sorted(report.get("missing_keys", ()))
    unknown = sorted(report.get("unexpected_keys", ()))
    if missing or unknown:
        what = f"lack {missing[0]!r}" if missing else f"hold {unknown[0]!r}, which the model has no place for"
        raise MacaronError(
            f"{folder}: the weights {what}. They do not belong to this config.json: copy the folder again."
        )
    if not isinstance(model, TranslationModel):
        raise MacaronError(f"{folder}: a {type(model).__name__}, which cannot translate")
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise MacaronError(f"{folder}: the weights hold values that are no finite numbers, in {name!r}")
    return model


def _load_tokenizer(folder: Path) -> MacaronTokenizer:
    try:
        with _quiet():
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise MacaronError(
            f"{folder}: the tokenizer cannot be read; copy tokenizer.json and tokenizer_config.json again. "
            f"({reason[:200]})"
        ) from error
    if not isinstance(tokenizer, MacaronTokenizer) or tokenizer.kind != "translation":
        raise MacaronError(f"{folder}: the tokenizer is not one for translation (see tokenizer_config.json)")
    return tokenizer


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and reports while loading: what is wrong we say ourselves."""
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
