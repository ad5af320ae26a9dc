"""A tiny encoder that knows nothing yet, as a folder; and the command without a process of its own."""

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
import torch

from macaron.cli import main
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


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def macaron() -> Callable[..., Done]:
    """The real command, called in this process: starting a new one takes longer than most of what is tested."""

    def run(*arguments: object) -> Done:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        code = 0
        with (
            mock.patch.object(sys, "argv", ["macaron", *map(str, arguments)]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
        return Done(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]

    return run
