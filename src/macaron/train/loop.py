"""The training loop."""

import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from macaron.device import keep_compiled, own_stream
from macaron.errors import Interrupted, MacaronError, resume_command
from macaron.files import remove_leftovers
from macaron.train import checkpoint, stopping
from macaron.train.checkpoint import Checkpoint, RunState
from macaron.train.distributed import Processes, distribute
from macaron.train.failures import not_finite
from macaron.train.logs import RunLog
from macaron.train.optimiser import Optimiser, copy_weights, freeze, learning_rate, whole
from macaron.train.passes import TITLES, Validation, accumulate, within_memory
from macaron.train.settings import TrainSettings
from macaron.train.step import RecordedStep, TrainStep, precision
from macaron.train.task import MicroBatch, Task


class Trainer:
    """Trains a task in a run folder.

    An update takes ``accumulate`` micro-batches of the epoch's plan, divided among the processes. The loss is summed
    over all of them and divided once, by the number of targets of the whole update, which every process knows from the
    plan. So the numbers do not depend on the number of processes, nor on the parts in which micro-batches are computed
    where memory does not suffice.
    """

    def __init__(
        self, task: Task, settings: TrainSettings, run: Path, processes: Processes, started: float | None = None
    ) -> None:
        if settings.accumulate < processes.world:
            raise MacaronError(
                f"{processes.world} processes cannot share {settings.accumulate} micro-batch(es) per update: set "
                f"train.accumulate to {processes.world} or a multiple of it (the global batch grows with it)"
            )
        self.task, self.settings, self.run, self.processes = task, settings, run, processes
        self.folder = run / "checkpoints"
        self.started = time.monotonic() if started is None else started
        self.signals = stopping.StopSignals()
        self.state, self.definition, self.parts_logged = RunState(), "", 1
        on_gpu = settings.wants_gpu(torch.cuda.is_available())
        self.device = torch.device("cuda", processes.local_rank) if on_gpu else torch.device("cpu")
        self.half = settings.precision == "bfloat16" or (settings.precision == "auto" and on_gpu)
        autocast = partial(precision, self.device, self.half)
        freeze(task.module, settings.freeze).to(self.device)
        fixed_shapes = settings.packs(on_gpu)
        sharded = processes.grouped and settings.distributed == "fsdp"
        wanted = settings.compile == "on" or (settings.compile == "auto" and on_gpu)
        lacks = task.fuse(settings, fixed_shapes, self.half, sharded) if wanted else ""
        path = f"compiled ({lacks})" if lacks else "fused kernels" if wanted else "eager"
        self.described = f"{self.device.type}, {'bfloat16' if self.half else 'float32'}, {path}"
        if lacks:
            keep_compiled()
        for part in task.compiled_parts if lacks else ():
            part.compile(dynamic=False if fixed_shapes else None)
        parts = [] if task.model.config.tying == "depth" else task.layers  # FSDP gathers one at a time
        distribute(task.module, parts, settings.distributed, processes, self.device)
        recorded = wanted and on_gpu and fixed_shapes and not sharded  # FSDP communicates between the kernels
        self.step = RecordedStep(task.module, autocast, processes) if recorded else TrainStep(task.module, autocast)
        self.validation = Validation(task, settings, processes, self.device, autocast)
        self.optimiser = Optimiser(task.module, settings, keep_gradients=recorded)
        self.log_losses = torch.zeros(len(task.loss_names), dtype=torch.float64, device=self.device)

    def fit(self, resume: bool) -> dict[str, Any]:
        """Train to the end of the run; returns a summary. A signal saves the state and raises `Interrupted`."""
        found = checkpoint.checkpoints(self.folder) if resume else []
        lost = self._load(found[-1]) if found else ""
        self.processes.wait()  # nothing is removed before all have read it
        if self.processes.first:
            remove_leftovers(self.folder)
            checkpoint.prune(self.folder, self.settings.kept, self.state.best_update)
        self._consult()
        keep_until = self.state.update if resume else None
        self.log = RunLog(self.run, self.processes.first, self.settings.tensorboard, keep_until, not self._over())
        self.log.say(
            f"{self.optimiser.size}, {self.described}, {self.processes.world} process(es)"
            + (f", micro-batches in {self.state.parts} parts" if self.state.parts > 1 else "")
            + (f", resumed at update {self.state.update}{lost}" if found else "")
        )
        try:
            with self.signals, own_stream(self.device):
                self.pace_targets, self.pace_start = 0, time.monotonic()
                self.begun, self.estimated = (self.seconds, max(self._shares())), False
                while not self._over():
                    self._section()
                return self._finish()
        finally:
            self.log.close()

    def _section(self) -> None:
        """The rest of a section of an epoch, or of the run if that ends before."""
        state, sections = self.state, self.task.sections
        present = state.epoch, state.section
        plan = self.task.plan((state.epoch - 1) * sections + state.section + 1)
        if not plan:
            raise MacaronError("the training data is empty")
        if state.batch >= len(plan):
            raise MacaronError(
                f"{self.folder}/update-{state.update:08d}: progress.batch must be below {len(plan):,}: the recipe has "
                "other batches (train.batch_tokens), or it is damaged. Start a new run with another --out."
            )
        state.batches, state.sections = len(plan), sections
        while (state.epoch, state.section) == present and not self._over():
            group = plan[state.batch : state.batch + self.settings.accumulate]
            self._update(group)
            self._after_update(state.epoch, end_of_epoch=state.finish(len(group)))

    def _update(self, group: Sequence[MicroBatch], share: float | None = None) -> None:
        """Forward and backward of all micro-batches of an update, then one step of the optimiser.

        :param share: of the schedule; default: what is done of it
        """
        state = self.state
        self.task.module.train()
        targets = sum(planned.targets for planned in group)
        done = self._shares()[0] if share is None else share
        self.rate = learning_rate(self.settings, state.update, done)
        seed = (self.settings.seed * 1_000_003 + state.update) * 4099

        def gradients(parts: int) -> tuple[Tensor, bool]:
            return accumulate(self.task, self.step, group, self.processes, self.device, seed, done, parts)

        # The parts are those of the later ones, too: they would not fit either.
        (losses, summed), state.parts = within_memory(
            gradients, state.parts, self.task, self.processes.most, self._drop_gradients
        )
        self.log_losses += losses
        if self.processes.grouped and self.settings.distributed == "ddp" and not summed:
            self.processes.sum_gradients(self.optimiser.named.values())
        self.norm = self.optimiser.step(self.rate, state.update)
        state.update += 1
        state.log_targets += targets
        self.pace_targets += targets
        self._consult()

    def _drop_gradients(self) -> None:
        self.step.forget()
        self.optimiser.drop_gradients()

    def _after_update(self, epoch: int, end_of_epoch: bool) -> None:
        """Log, validate, save, stop: whatever is due after an update of an epoch."""
        settings, state = self.settings, self.state
        # Whatever the epochs: means over the few updates that an epoch leaves would be spikes in a curve.
        log = state.update % settings.log_every == 0
        validate, save = (
            state.update % every == 0 if every else end_of_epoch
            for every in (settings.validate_every, settings.checkpoint_every)
        )
        if state.parts > self.parts_logged:
            self.parts_logged = state.parts
            self.log.metrics(state.update, {"epoch": epoch, "parts": state.parts}, max(self._shares()))
        at_end = self._over()
        if not self.estimated and (log or self.seconds - self.begun[0] > stopping.ESTIMATE_AFTER):
            self.estimated = True
            if not log:
                left = stopping.time_left(max(self._shares()), self.seconds, *self.begun)
                self.log.say(f"update {state.update}: about {left} left, at the pace so far")
        # Reading the loss synchronises with the GPU, so it is read only when something is written.
        if log or validate or save or at_end or self.stop or self.device.type == "cpu":
            sums = self.processes.sum(self.log_losses.clone()).tolist()
            if not all(map(math.isfinite, sums)):
                raise self._not_finite("the loss", epoch)
            if log:
                self._write_log(epoch, sums)
        paused = time.monotonic()
        if validate or at_end:
            self._validate(epoch, scheduled=validate)
        if save or self._over() or self.stop:
            self._save(scheduled=save)
        self.pace_start += time.monotonic() - paused
        if self.stop:
            raise Interrupted(f"stopped at update {state.update}; continue with: {resume_command(self.run)}")

    def _write_log(self, epoch: int, sums: list[float]) -> None:
        elapsed = time.monotonic() - self.pace_start
        share, targets = max(self._shares()), self.state.log_targets
        losses = zip(self.task.loss_names, sums, strict=True)
        values: dict[str, Any] = {
            "epoch": epoch,
            **{name: value / max(targets, 1) for name, value in losses},
            "targets": targets,
            "learning_rate": self.rate,
            "tokens_per_second": round(self.pace_targets / max(elapsed, 1e-9), 1),
            "seconds": round(self.seconds, 3),
            "time_left": stopping.time_left(share, self.seconds, *self.begun),
        }
        if self.norm is not None:
            values["gradient_norm"] = float(whole(self.norm))
        if self.device.type == "cuda":
            values["memory_gib"] = round(torch.cuda.max_memory_reserved(self.device) / 2**30, 2)
        self.log.metrics(self.state.update, values, share)
        self.log_losses.zero_()
        self.state.log_targets = 0
        self.pace_targets, self.pace_start = 0, time.monotonic()

    def _validate(self, epoch: int, scheduled: bool) -> None:
        """Validate and log; only a scheduled validation counts for best and patience: a run's end may be moved."""
        state = self.state
        values, counts = self.validation.losses(state)
        if not math.isfinite(values["valid_loss"]):
            raise self._not_finite("the validation loss", epoch)
        values |= self.validation.scores(state, counts)
        value = self.validation.value(values)
        rank, best = self.validation.rank, state.best_value
        if scheduled and (best is None or rank(value) < rank(best)):
            state.best_value, state.best_update = value, state.update
            state.validations_without_gain = 0
            self._write(checkpoint.best_path(self.folder, state.update), {}, scheduled=True)
        elif scheduled:
            state.validations_without_gain += 1
        if (definition := values.get("bleu_definition", "")) != self.definition:  # say it once
            self.definition = definition
            self.log.say(f"BLEU of the first {values['bleu_sentences']:,} validation sentences: {definition}")
        values |= {"epoch": epoch, "seconds": round(self.elapsed(), 3), **({} if scheduled else {"end": True})}
        values |= {"validation_parts": state.validation_parts} if state.validation_parts > 1 else {}
        self.log.metrics(state.update, values, max(self._shares()))

    def _save(self, scheduled: bool) -> None:
        self.state.seconds = self.elapsed()
        self.state.log_losses = self.processes.sum(self.log_losses.clone()).tolist()
        moments = self.optimiser.tensors()
        self._write(self.folder / f"update-{self.state.update:08d}", moments, scheduled)
        if self.processes.first:
            checkpoint.prune(self.folder, self.settings.kept, self.state.best_update)

    def _write(self, folder: Path, moments: dict[str, Tensor], scheduled: bool) -> None:
        weights = self.weights()
        if not all(bool(tensor.isfinite().all()) for tensor in (*weights.values(), *moments.values())):
            raise self._not_finite("the last update of the weights", self.state.epoch)
        if self.processes.first:
            found = Checkpoint(weights, moments, self.state, self.task.identity(), scheduled)
            checkpoint.save(folder, found, self.task.describe)

    def weights(self) -> dict[str, Tensor]:
        """All weights, gathered, on the CPU."""
        return {name: whole(parameter) for name, parameter in self.optimiser.named.items()}

    def _load(self, folder: Path) -> str:
        """Restore a checkpoint; returns what to say besides."""
        found = checkpoint.load(folder)
        shapes = {name: tuple(tensor.shape) for name, tensor in self.optimiser.named.items()}
        checkpoint.require_same(folder, found, shapes, self.task.identity(), len(self.log_losses))
        self.state, self.parts_logged = found.state, found.state.parts
        self.started -= found.state.seconds
        copy_weights(found.weights, self.optimiser.named.items())
        self.optimiser.load(found.moments, folder)
        if self.processes.first:  # the sum over all processes
            self.log_losses += torch.tensor(found.state.log_losses, dtype=torch.float64, device=self.device)
        return checkpoint.forget_lost_best(self.folder, self.state)

    def _finish(self) -> dict[str, Any]:
        """Choose the final model among last, best, average and running mean, and write it."""
        if not self.state.update:
            raise MacaronError("time ran out before the first update: nothing is trained; raise train.max_minutes")
        if ended := stopping.early_end(self.settings, self.state, self.seconds, resume_command(self.run)):
            self.log.say(ended)
        self.processes.wait()  # for the last checkpoint, which all read
        mean = {name: whole(value) for name, value in self.optimiser.mean.items()}
        found = checkpoint.candidates(self.folder, self.state, self.weights(), mean, self.settings.average)
        losses, scores, likelihoods = self.validation.compare(found, self.state)
        values = scores or losses
        chosen = min(values, key=lambda name: self.validation.rank(values[name]))  # the first of equals
        copy_weights(found[chosen], self.optimiser.named.items())
        summary = {
            "update": self.state.update,
            "epoch": self.state.epoch,
            "seconds": round(self.elapsed(), 1),
            "final_model": chosen,
            "candidates": losses,
            **({"candidate_scores": scores, "score_definition": self.validation.definition} if scores else {}),
            **({"candidate_nll": likelihoods} if likelihoods else {}),
        }
        if self.processes.first:
            self.task.save(self.run / "model", found[chosen])
        self.log.metrics(self.state.update, {"final": summary}, 1.0)
        shown = f", {TITLES[self.settings.best_metric]} {scores[chosen]:.2f}" if scores else ""
        self.log.say(f"final model: {chosen} (valid loss {losses[chosen]:.4f}{shown}) in {self.run / 'model'}")
        self.processes.wait()
        return summary

    def _consult(self) -> None:
        """Agree with the other processes on the clock, and on whether to stop."""
        self.stop, self.seconds = self.processes.agree(self.signals.received, self.elapsed())

    def elapsed(self) -> float:
        """Seconds of the run until now, imports and compilation included, and those before it was resumed."""
        return time.monotonic() - self.started

    def _shares(self) -> list[float]:
        return stopping.shares(self.settings, self.state, self.seconds)

    def _over(self) -> bool:
        return stopping.over(self.settings, self.state, self.seconds)

    def _not_finite(self, what: str, epoch: int) -> MacaronError:
        when = f"update {self.state.update} (epoch {epoch}, learning rate {self.rate:.3g})"
        return not_finite(what, when, self.weights(), checkpoint.checkpoints(self.folder))
