"""A tiny encoder with random weights, as a folder."""

from pathlib import Path

import pytest
import torch

from macaron.models import EncoderForPreTraining, preset
from macaron.text.tokenizer import MacaronTokenizer

WORDS = "the cat sat on mat it was and run away house good bad"


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random pre-trained folder, with the authors' segments: 1 for the first text."""
    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = MacaronTokenizer.train([WORDS] * 20, 330, kind="encoder", segments=(1, 0))
    torch.manual_seed(0)
    config = preset(
        "macaron-bert-tiny",
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_attention_heads=2,
        intermediate_size=128,
        first_segment=1,
        tokenizer_fingerprint=tokenizer.fingerprint(),
    )
    EncoderForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
