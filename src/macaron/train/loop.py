"""The training loop."""

import math
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from macaron.errors import MacaronError
from macaron.train import checkpoint
from macaron.train.checkpoint import Progress
from macaron.train.distributed import Processes
from macaron.train.logs import RunLog
from macaron.train.optimiser import Optimiser, copy_weights, whole
from macaron.train.schedule import learning_rate
from macaron.train.settings import TrainSettings
from macaron.train.task import Piece, Task


class Stopped(Exception):
    """A signal asked the run to stop; its state has been saved."""


class Trainer:
    """Trains a task in a run folder.

    An update takes ``accumulate`` micro-batches of the epoch's plan; the processes share them out. The loss is summed
    over all of them and divided once, by the number of targets of the whole update, which every process knows from the
    plan. So the numbers do not depend on how many processes there are.
    """

    def __init__(
        self, task: Task, settings: TrainSettings, run: Path, processes: Processes, started: float | None = None
    ) -> None:
        self.task, self.settings, self.run, self.processes = task, settings, run, processes
        self.started = time.monotonic() if started is None else started
        self.device = _device(settings, processes)
        self.folder = run / "checkpoints"
        self.progress = Progress()
        self.stop_signal: int | None = None
        if settings.accumulate % processes.world and settings.accumulate < processes.world:
            raise MacaronError(
                f"{processes.world} processes cannot share {settings.accumulate} micro-batch(es) an update: set "
                f"train.accumulate to {processes.world} or a multiple of it (the global batch grows with it)"
            )
        task.model.to(self.device)
        self.half = settings.precision == "bfloat16" or (settings.precision == "auto" and self.device.type == "cuda")
        if settings.compile == "on" or (settings.compile == "auto" and self.device.type == "cuda"):
            for part in task.compiled_parts():
                part.compile(dynamic=None if settings.batching == "bucket" else False)
        self.module = self._distribute()
        self.optimiser = Optimiser(self.module, settings)

    def _distribute(self) -> nn.Module:
        if self.processes.world == 1:
            return self.task.module
        if self.settings.distributed == "fsdp":
            from torch.distributed.fsdp import fully_shard

            for part in self.task.compiled_parts():
                fully_shard(part)
            fully_shard(self.task.module)  # in place: the module gains the methods of an FSDPModule
            return self.task.module
        return DistributedDataParallel(
            self.task.module,
            device_ids=[self.processes.local_rank] if self.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
        )

    def fit(self, resume: bool) -> dict[str, Any]:
        """Train to the end of the run; returns a summary."""
        found = checkpoint.checkpoints(self.folder) if resume else []
        if found:
            self._load(found[-1])
        self.log = RunLog(
            self.run, self.processes.first, self.settings.tensorboard, self.progress.update if resume else None
        )
        self.log.say(
            f"{sum(p.numel() for p in self.task.model.parameters()):,} parameters, {self.device.type}, "
            f"{'bfloat16' if self.half else 'float32'}, {self.processes.world} process(es)"
            + (f", resumed at update {self.progress.update}" if found else "")
        )
        try:
            with self._signals():
                self._train()
                return self._finish()
        except (torch.cuda.OutOfMemoryError, MemoryError) as error:
            raise _out_of_memory(self.settings, self.device) from error
        except RuntimeError as error:
            if "can't allocate memory" in str(error) or "not enough memory" in str(error):
                raise _out_of_memory(self.settings, self.device) from error
            raise
        finally:
            self.log.close()

    # The epoch, the update.

    def _train(self) -> None:
        self.log_losses = torch.zeros(len(self.task.loss_names), dtype=torch.float64, device=self.device)
        self.log_targets, self.log_time = 0, time.monotonic()
        self.clock = time.monotonic()
        while not self._over():
            plan = self.task.plan(self.progress.epoch)
            if not plan:
                raise MacaronError(
                    "the training data is empty (after leaving out what is longer than train.max_length)"
                )
            while self.progress.batch < len(plan) and not self._over():
                self._update(plan[self.progress.batch : self.progress.batch + self.settings.accumulate])
                self._after_update(last=self.progress.batch >= len(plan))

    def _update(self, group: Sequence[Piece]) -> None:
        progress, world = self.progress, self.processes.world
        self.task.module.train()
        targets = sum(piece.targets for piece in group)
        rate = learning_rate(self.settings, progress.update, self._share())
        mine = [i for i in range(len(group)) if i % world == self.processes.rank]
        weight = world / max(targets, 1)
        for turn, i in enumerate(mine or [0]):
            # Seeded by its place in the run, a micro-batch meets the same dropout after a resume or in another process.
            torch.manual_seed((self.settings.seed * 1_000_003 + progress.update) * 4099 + i)
            batch = self.task.batch(group[i], self.device)
            with self._no_sync(turn + 1 < len(mine)), self._autocast():
                losses: Tensor = self.module(batch)
            torch.autograd.backward(losses[0] * (weight if mine else 0.0))
            if mine:
                self.log_losses += losses.detach().double()
        norm = self.optimiser.step(rate, progress.update)
        progress.update += 1
        progress.batch += len(group)
        self.log_targets += targets
        self.last_rate, self.last_norm = rate, norm

    def _after_update(self, last: bool) -> None:
        """Log, validate, save, stop: whatever is due after an update."""
        settings, progress = self.settings, self.progress
        if last:
            progress.epoch, progress.batch = progress.epoch + 1, 0
        if progress.update % settings.log_every == 0 or last or self.device.type == "cpu":
            self._check_finite(write=progress.update % settings.log_every == 0 or last)
        over = self._over()
        if _due(progress.update, settings.validate_every, last) or over:
            self._validate()
        if _due(progress.update, settings.checkpoint_every, last) or over:
            self._save()
        stop = self.stop_signal is not None
        if self.processes.world > 1:
            stop = progress.update % 10 == 0 and self.processes.any(stop, self.device)
        if stop:
            self._save()
            raise Stopped(f"stopped at update {progress.update}; go on with --resume")

    def _check_finite(self, write: bool) -> None:
        sums = self.processes.sum(self.log_losses.clone()).tolist()
        if not all(math.isfinite(value) for value in sums):
            raise MacaronError(self._diagnosis())
        if not write:
            return
        elapsed = time.monotonic() - self.log_time
        values: dict[str, Any] = {"epoch": self.progress.epoch}
        for name, value in zip(self.task.loss_names, sums, strict=True):
            values[name] = value / max(self.log_targets, 1)
        values["learning_rate"] = self.last_rate
        values["tokens_per_second"] = self.log_targets / max(elapsed, 1e-9)
        values["seconds"] = self._seconds()
        values["time_left"] = _duration(self._seconds_left())
        if self.last_norm is not None:
            values["gradient_norm"] = float(self.last_norm)
        self.log.metrics(self.progress.update, values, self._share())
        self.log_losses.zero_()
        self.log_targets, self.log_time = 0, time.monotonic()

    def _diagnosis(self) -> str:
        bad = [n for n, p in self.optimiser.named.items() if not torch.isfinite(whole(p)).all()]
        where = f"; first affected weights: {bad[0]}" if bad else "; the weights are still finite"
        kept = checkpoint.checkpoints(self.folder)
        left = f"The last good checkpoint is {kept[-1]}" if kept else "No checkpoint had been written yet"
        return (
            f"the loss is not finite at or before update {self.progress.update} (epoch {self.progress.epoch}, "
            f"micro-batch {self.progress.batch}, learning rate {self.last_rate:.3g}){where}. {left}. Try a lower "
            "train.learning_rate, a longer train.warmup or train.clip_norm=1."
        )

    # Validation, checkpoints, the end.

    def _validate(self) -> None:
        paused = time.monotonic()
        values = self.validation()
        progress = self.progress
        if progress.best_loss is None or values["valid_loss"] < progress.best_loss:
            progress.best_loss, progress.best_update = values["valid_loss"], progress.update
            progress.validations_without_gain = 0
            if self.processes.first or self.settings.distributed == "fsdp":
                self._write(self.folder / "best", with_optimiser=False)
        else:
            progress.validations_without_gain += 1
        if self.processes.first:
            values.update(self.task.score(self.device))
        self.log.metrics(
            progress.update, {"epoch": progress.epoch, **values, "seconds": self._seconds()}, self._share()
        )
        self.log_time += time.monotonic() - paused

    def validation(self) -> dict[str, Any]:
        """Mean losses over the validation data."""
        self.task.module.eval()
        with torch.no_grad(), self._autocast():
            sums, targets = self.task.validate(self.device, self.processes.rank, self.processes.world)
        both = torch.cat([sums.double(), torch.tensor([targets], dtype=torch.float64, device=sums.device)])
        *losses, count = self.processes.sum(both).tolist()
        return {f"valid_{n}": v / max(count, 1) for n, v in zip(self.task.loss_names, losses, strict=True)}

    def _save(self) -> None:
        self.progress.seconds = self._seconds()
        self.clock = time.monotonic()
        if not all(math.isfinite(value) for value in self.log_losses.tolist()):
            raise MacaronError(self._diagnosis())
        paused = time.monotonic()
        self._write(checkpoint.checkpoint_path(self.folder, self.progress.update), with_optimiser=True)
        if self.processes.first:
            kept = max(self.settings.keep, self.settings.average)
            for old in checkpoint.checkpoints(self.folder)[:-kept]:
                for path in old.iterdir():
                    path.unlink()
                old.rmdir()
        self.log_time += time.monotonic() - paused

    def _write(self, folder: Path, with_optimiser: bool) -> None:
        weights = self.weights()
        moments = self.optimiser.tensors() if with_optimiser else {}
        if self.processes.first:
            checkpoint.save(folder, weights, moments, self.progress)

    def weights(self) -> dict[str, Tensor]:
        """All weights, whole, on the CPU."""
        return {name: whole(parameter) for name, parameter in self.optimiser.named.items()}

    def _load(self, folder: Path) -> None:
        weights, moments, self.progress, _ = checkpoint.load(folder)
        if set(weights) != set(self.optimiser.named):
            odd = sorted(set(weights) ^ set(self.optimiser.named))[0]
            raise MacaronError(f"{folder}: belongs to another model ({odd!r} is only in one of them)")
        copy_weights(weights, self.optimiser.named.items())
        self.optimiser.load(moments)

    def _finish(self) -> dict[str, Any]:
        """Choose the final model by validation loss among best, last, average and running mean; write it."""
        last = self.weights()
        candidates: dict[str, dict[str, Tensor]] = {"last": last}
        best = self.folder / "best"
        if best.is_dir() and self.progress.best_update != self.progress.update:
            candidates["best"] = checkpoint.weights_of(best)
        kept = checkpoint.checkpoints(self.folder)[-self.settings.average :] if self.settings.average else []
        if len(kept) > 1:
            candidates[f"average of {len(kept)}"] = checkpoint.average(kept)
        if self.optimiser.mean:
            candidates["running mean"] = {name: whole(value) for name, value in self.optimiser.mean.items()}
        losses: dict[str, float] = {}
        for name, weights in candidates.items():
            copy_weights(weights, self.optimiser.named.items())
            losses[name] = self.validation()["valid_loss"]
        chosen = min(losses, key=lambda name: losses[name])
        copy_weights(candidates[chosen], self.optimiser.named.items())
        summary = {
            "update": self.progress.update,
            "epoch": self.progress.epoch,
            "seconds": round(self._seconds(), 1),
            "final_model": chosen,
            "candidates": losses,
        }
        if self.processes.first:
            self.task.save(self.run / "model", candidates[chosen])
        self.log.metrics(self.progress.update, {"final": summary}, 1.0)
        self.log.say(f"final model: {chosen} (valid loss {losses[chosen]:.4f}) in {self.run / 'model'}")
        self.processes.wait()
        return summary

    # Clocks and limits.

    def _seconds(self) -> float:
        """Seconds of this run, those before it was resumed included."""
        return self.progress.seconds + time.monotonic() - (self.clock if hasattr(self, "clock") else self.started)

    def _share(self) -> float:
        """The share of the run that is done, by whichever limit is nearest."""
        settings, progress = self.settings, self.progress
        shares = [0.0]
        if settings.max_updates:
            shares.append(progress.update / settings.max_updates)
        if settings.max_epochs:
            shares.append((progress.epoch - 1) / settings.max_epochs)
        if settings.max_minutes:
            shares.append(self.processes.agree(self._seconds(), self.device) / (60 * settings.max_minutes))
        return min(max(shares), 1.0)

    def _seconds_left(self) -> float:
        share = self._share()
        return self._seconds() * (1 - share) / share if share > 0 else math.inf

    def _over(self) -> bool:
        waited = self.settings.patience and self.progress.validations_without_gain >= self.settings.patience
        return self._share() >= 1.0 or bool(waited)

    # Contexts.

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.half else nullcontext()

    def _no_sync(self, wait: bool) -> AbstractContextManager[Any]:
        if self.processes.world > 1 and self.settings.distributed == "fsdp":
            self.module.set_requires_gradient_sync(not wait)  # type: ignore[operator]
        elif wait and isinstance(self.module, DistributedDataParallel):
            return self.module.no_sync()
        return nullcontext()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the run after the update at hand; a second one ends it at once."""

        def note(number: int, _: FrameType | None) -> None:
            if self.stop_signal is not None:
                raise KeyboardInterrupt
            self.stop_signal = number

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _device(settings: TrainSettings, processes: Processes) -> torch.device:
    if settings.device == "cuda" or (settings.device == "auto" and torch.cuda.is_available()):
        if not torch.cuda.is_available():
            raise MacaronError("train.device = cuda, but PyTorch sees no GPU here: take device = auto or cpu")
        return torch.device("cuda", processes.local_rank)
    return torch.device("cpu")


def _due(update: int, every: int, end_of_epoch: bool) -> bool:
    return update % every == 0 if every else end_of_epoch


def _duration(seconds: float) -> str | None:
    if not math.isfinite(seconds):
        return None
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _out_of_memory(settings: TrainSettings, device: torch.device) -> MacaronError:
    half = max(1, settings.batch_tokens // 2)
    return MacaronError(
        f"out of memory on {device.type} with train.batch_tokens = {settings.batch_tokens}. The same global batch in "
        f"less memory: --set train.batch_tokens={half} --set train.accumulate={2 * settings.accumulate}. If the model "
        "itself is too large: a smaller preset, or several GPUs with train.distributed = 'fsdp'."
    )
