"""When a run fails it says what happened and what to do, and keeps the last good checkpoint."""

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from macaron.errors import MacaronError
from macaron.recipe import load_recipe
from macaron.tasks.run import run
from macaron.tasks.translation import TranslationLoss
from macaron.train import checkpoint
from macaron.train.failures import explained
from macaron.train.settings import TrainSettings


def test_a_loss_that_explodes(recipe: Path, server: Any, tmp_path: Path):
    """Weights beyond all bounds after the first update, a loss that is not finite at the second."""
    out = tmp_path / "run"
    text = server.run(
        *("train", recipe, "--out", out, "--set", "train.learning_rate=1e30", "--set", "train.warmup=0"), code=1
    )
    assert "the loss is not finite at or before update 2 (epoch 1, learning rate" in text
    assert "No checkpoint had been written yet. Try a lower train.learning_rate" in text
    assert "Traceback" not in text


def inject(monkeypatch: pytest.MonkeyPatch, call: int, value: float) -> None:
    """Make the n-th training loss useless."""
    original, calls = TranslationLoss.forward, 0

    def forward(self: TranslationLoss, batch: Any) -> torch.Tensor:
        nonlocal calls
        losses = original(self, batch)
        if self.training:
            calls += 1
            return losses * value if calls == call else losses
        return losses

    monkeypatch.setattr(TranslationLoss, "forward", forward)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite(value: float, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings = load_recipe(recipe, ["train.checkpoint_every=5", "train.accumulate=1"])
    with monkeypatch.context() as patch:
        inject(patch, 8, value)
        with pytest.raises(MacaronError) as caught:
            run(settings, tmp_path / "run", resume=False)
    text = str(caught.value)
    assert "the loss is not finite at or before update 8 (epoch 1, learning rate" in text
    assert "weights that are not finite: 49, first " in text
    kept = tmp_path / "run" / "checkpoints" / "update-00000005"
    assert f"The last good checkpoint is {kept}." in text
    weights = checkpoint.load(kept).weights
    assert all(tensor.isfinite().all() for tensor in weights.values())
    assert not (tmp_path / "run" / "model").exists()


def test_an_update_that_spoils_the_weights_is_not_saved(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The loss of the update is finite, its gradient is not: nobody would know before the next update."""
    original = torch.optim.AdamW.step

    def step(self: Any, *args: Any) -> None:
        original(self, *args)
        steps = next(iter(self.state.values()))["step"]
        if int(steps) == 6:
            with torch.no_grad():
                self.param_groups[0]["params"][0].fill_(float("nan"))

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    settings = load_recipe(recipe, ["train.checkpoint_every=3"])
    with pytest.raises(MacaronError, match=r"not finite at or before update 6.*update-00000003\."):
        run(settings, tmp_path / "run", resume=False)
    assert [path.name for path in checkpoint.checkpoints(tmp_path / "run" / "checkpoints")] == ["update-00000003"]


def test_a_full_disk_while_saving(recipe: Path, server: Any, same_run: Any, tmp_path: Path):
    """The system refuses to make files larger than a checkpoint's moments: the one before stays, and resumes."""
    whole, out = tmp_path / "whole", tmp_path / "run"
    arguments = ("--set", "train.max_updates=8", "--set", "train.checkpoint_every=4")
    server.run("train", recipe, "--out", whole, *arguments)
    server.run("train", recipe, "--out", out, "--set", "train.max_updates=4", "--set", "train.checkpoint_every=4")
    text = server.run("train", recipe, "--out", out, *arguments, "--resume", limit=["RLIMIT_FSIZE", 150_000], code=1)
    assert f"{out / 'checkpoints' / 'update-00000008'} could not be written" in text
    assert "Earlier checkpoints are untouched: free some space and continue with: " in text
    assert "Traceback" not in text
    assert [path.name for path in (out / "checkpoints").iterdir() if path.name.startswith(("update", "."))] == [
        "update-00000004"
    ]
    assert text.rstrip().endswith(f"macaron train --resume --out {out}")
    server.run("train", "--out", out, *arguments, "--resume")
    same_run(whole, out)


def test_a_model_that_cannot_be_built_has_the_line_of_its_section(recipe: Path, tmp_path: Path):
    wrong = load_recipe(recipe, ["model.intermediate_size=2"])
    with pytest.raises(MacaronError, match=r"recipe\.toml, line 5: \[model\]: scheme 'strang-gfg' has too many"):
        run(wrong, tmp_path / "run", resume=False)


def test_a_full_disk_before_there_is_a_run(recipe: Path, server: Any, tmp_path: Path):
    text = server.run("train", recipe, "--out", tmp_path / "run", limit=["RLIMIT_FSIZE", 500], code=1)
    assert f"{tmp_path / 'run' / 'recipe.toml'} cannot be written" in text
    assert text.endswith("Free some space.\n")  # nothing to continue
    assert not (tmp_path / "run").exists()


def test_a_full_disk_while_writing_the_model(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    settings = load_recipe(recipe, ["train.max_updates=2"])
    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", full)
        with pytest.raises(
            MacaronError,
            match=r"model cannot be written: No space left on device. Free some space. Then continue with: macaron",
        ):
            run(settings, tmp_path / "run", resume=False)
    assert not list((tmp_path / "run").glob(".model*"))
    run(settings, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()


def test_too_little_memory(recipe: Path, server: Any, tmp_path: Path):
    """A real limit of the system on a model that is too large for it."""
    big = ("--set", "model.preset=macaron-big", "--set", "model.hidden_size=1024", "--set", "model.encoder_layers=6")
    text = server.run("train", recipe, "--out", tmp_path / "run", *big, limit=["RLIMIT_AS", 500 << 20], code=1)
    assert "out of memory with train.batch_tokens = 256" in text
    assert "--set train.batch_tokens=128 --set train.accumulate=4" in text
    assert "a smaller model.preset, or several GPUs with train.distributed = 'fsdp'" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_ways_to_run_out_of_memory(error: Exception, tmp_path: Path):
    with (
        pytest.raises(MacaronError, match=r"train\.batch_tokens=2048 --set train\.accumulate=2"),
        explained(TrainSettings(max_updates=1), tmp_path),
    ):
        raise error
    with pytest.raises(RuntimeError, match="else"), explained(TrainSettings(max_updates=1), tmp_path):
        raise RuntimeError("something else")
