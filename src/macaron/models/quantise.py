"""A model folder in a quarter of its size: matrices in int8, with a scale for each row."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from macaron.errors import MacaronError, require
from macaron.files import atomic_folder, check_unused, write_json
from macaron.json_files import Record, read_json
from macaron.models import load
from macaron.models.encoder import EncoderForMaskedLM
from macaron.models.translation import LanguageForSequenceClassification, LanguageModel, TranslationModel
from macaron.nn.linear import round_rows
from macaron.seal import DIGESTS, checked, seal

#: What is not copied: weights, the state of a training run, digests, hidden files.
_LEFT = shutil.ignore_patterns("*.safetensors", "*.safetensors.index.json", "state.json", DIGESTS, ".*")


def quantise(model: str | Path, out: Path) -> str:
    """Write a model folder whose matrices are int8, and all else as it is; returns a line about it."""
    folder = load.find_folder(model)
    require(not load.is_int8(folder), f"{folder}: its matrices are int8 already")
    check_unused(out, "give another --out")
    with checked(folder, load.USED_FILES):
        config, found = read_json(folder / "config.json", Record), load.read_weights(folder)
        headed = any(name.startswith("classifier.") for name in found)
        language: Any = LanguageForSequenceClassification if headed else LanguageModel
        networks = {each.config_class.kind: each for each in (TranslationModel, EncoderForMaskedLM, language)}
        # Refuses what does not fit config.json.
        load.load_model(folder, networks[load.model_kind(folder)], heads=load.ENCODER_HEADS)
        weights = _rounded(folder, found)
        with atomic_folder(out) as partial:
            left = {str(folder): _LEFT(str(folder), os.listdir(folder))}  # subfolders are copied whole
            shutil.copytree(folder, partial, ignore=lambda place, _: left.get(place, ()), dirs_exist_ok=True)
            write_json(partial / "config.json", {**config, "dtype": "float32", load.QUANTISATION: load.INT8})
            load.save_weights(partial, weights)
            seal(partial)
    before, after = (sum(each.nbytes for each in tensors.values()) for tensors in (found, weights))
    return f"{out}: {after:,} bytes of weights instead of {before:,}"


def _rounded(folder: Path, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of an int8 folder, made of those of another one.

    Biases, norms and scales are float32: they are small, and ``--int8`` does not round them either.
    """
    weights: dict[str, Tensor] = {}
    for name, stored in found.items():
        weights[name] = stored.float()
        if not bool(weights[name].isfinite().all()):
            raise MacaronError(f"{folder}: the weights contain non-finite values in {name!r}")
        if stored.dim() > 2:
            raise MacaronError(f"{folder}: weighted branches cannot be int8 ({name!r})")
        if load.is_matrix(name, stored):
            weights[name], weights[name + load.SCALES] = round_rows(weights[name])
    return weights
