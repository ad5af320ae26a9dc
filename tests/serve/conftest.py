"""Servers for the tests of this folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from served import CLASSIFIER, FREE, SLOW, TRANSLATION, Served, start


@pytest.fixture(scope="session")
def server() -> Iterator[Served]:
    """A server of a translation model and a classifier, shared by all tests of this process."""
    # A busy machine must not make it refuse what would be late otherwise.
    served = start(TRANSLATION, CLASSIFIER, "--deadline", "600")
    yield served
    code, errors = served.stop()
    assert code == 0, errors


@pytest.fixture
def start_server() -> Iterator[Callable[..., Served]]:
    """Starts servers of a test's own, with further arguments; they end with the test."""
    started: list[Served] = []

    def begin(*arguments: object) -> Served:
        started.append(start(*(arguments or (TRANSLATION,))))
        return started[-1]

    yield begin
    for served in started:
        served.process.kill()
        served.process.communicate()


@pytest.fixture(scope="session")
def little(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder that was never trained."""
    import torch

    from macaron.models.encoder import EncoderForMaskedLM
    from macaron.models.presets import preset
    from macaron.text import MacaronTokenizer

    torch.manual_seed(1)
    lines = ["The cat sits on the mat.", "A dog, a cat and a mouse sleep.", "Where is the big house?"]
    tokenizer = MacaronTokenizer.train(lines, 300, kind="encoder")
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "num_hidden_layers": 2}
    own = {"vocab_size": len(tokenizer), "tokenizer_fingerprint": tokenizer.fingerprint()}
    folder = tmp_path_factory.mktemp("models") / "little"
    EncoderForMaskedLM(preset("macaron-bert-tiny", **sizes, **own)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory, little: Path) -> Iterator[Served]:
    """A server that wants keys, has limits, two translation models and an encoder."""
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text(f"# keys of the tests\n\n{FREE} 100000 # for most\n{SLOW}\n")
    options = ("--api-keys", keys, "--requests-per-minute", 3, "--text-limit", 100, "--cors", "https://page.example")
    served = start(f"de-en={TRANSLATION}", f"en-de={TRANSLATION}", little, *options)
    yield served
    code, errors = served.stop()
    assert (code, errors) == (0, "")
