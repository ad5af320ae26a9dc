"""A trained model as a folder that transformers reads."""

import shutil
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import logging

from macaron.text.tokenizer import MacaronTokenizer
from macaron.train.failures import disk_full


def save_model(folder: Path, model: PreTrainedModel, weights: dict[str, Tensor], tokenizer: MacaronTokenizer) -> None:
    """Write weights, configuration and tokenizer. The folder is there entirely or not at all.

    :param weights: by their names in the model
    """
    aside = folder.with_name(f".{folder.name}.writing")
    shutil.rmtree(aside, ignore_errors=True)
    logging.disable_progress_bar()  # transformers' own, which would run into ours
    try:
        model.save_pretrained(aside, state_dict=weights)
        tokenizer.save_pretrained(aside)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise disk_full(folder, error) from error
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
