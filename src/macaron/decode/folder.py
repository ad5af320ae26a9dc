"""Opening a model folder for translation; on which device, and in what numbers."""

from pathlib import Path

import torch

from macaron.errors import MacaronError
from macaron.models.configuration import TranslationConfig
from macaron.models.load import find_folder, load_model
from macaron.models.translation import TranslationModel
from macaron.text.load_tokenizer import model_tokenizer
from macaron.text.tokenizer import MacaronTokenizer

_DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_folder(path: str | Path) -> tuple[TranslationModel, MacaronTokenizer]:
    """The model and the tokenizer of a folder, checked to belong together. A run's folder stands for its model."""
    folder = find_folder(path, TranslationConfig.model_type)
    model, _ = load_model(folder, TranslationModel)
    return model, model_tokenizer(folder, "translation", model.config)


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
