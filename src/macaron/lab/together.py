"""Several runs at a time on one machine, each a ``macaron train`` of its own, whose lines get its name."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from macaron.errors import MacaronError, same_command
from macaron.files import write_text
from macaron.recipe import Recipe
from macaron.settings import write_toml
from macaron.tasks.run import finished


def train_together(runs: Sequence[tuple[str, Recipe, Path]], jobs: int, say: Callable[[str], None]) -> None:
    """Train runs in processes of their own, ``jobs`` at a time; begun ones are resumed.

    If one fails, the others go on; the error at the end names it. Ctrl-C and SIGTERM stop all of them in good order.
    """
    left = [run for run in runs if not finished(*run[1:])]
    say(f"{len(runs) - len(left)} of {len(runs)} runs are finished")
    threads = max(1, torch.get_num_threads() // min(jobs, len(runs)))
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
    gpus = cycle(chosen.split(","))
    running: list[subprocess.Popen[str]] = []
    failed: list[str] = []
    lock = threading.Lock()

    def train(name: str, recipe: Recipe, folder: Path) -> None:
        name, file, line = f"{name}, seed {recipe.train.seed}", Path(recipes) / f"{folder.name}.toml", ""
        write_text(file, write_toml(recipe.to_data()))
        command = [sys.executable, "-m", "macaron", "train", str(file), "--resume", "--out", str(folder)]
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        # In a session of its own Ctrl-C does not reach it, which would come twice.
        own = environment | {"CUDA_VISIBLE_DEVICES": next(gpus)}
        process = subprocess.Popen(command, **pipes, env=own, errors="replace", start_new_session=True)
        running.append(process)
        for text in process.stdout or ():
            line = re.sub(rf"{re.escape(str(file))}(, line \d+)?: ", "", text)  # a file that will be gone
            with lock:  # whole lines
                say(f"{name}: {line.rstrip()}")
        if code := process.wait():
            said = f"{line.strip().removeprefix('macaron: ')} (exit code {code})"
            failed.append(f"{name}: {said if code > 0 else f'killed by {signal.Signals(-code).name}'}")

    with TemporaryDirectory() as recipes, ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(train, *run) for run in left]
        try:
            for future in futures:
                future.result()
        except BaseException:  # Ctrl-C as a rule
            pool.shutdown(wait=False, cancel_futures=True)
            told = 0
            try:
                while not all(future.done() for future in futures):
                    for process in running[told:]:  # one may just have been started
                        process.terminate()
                        told += 1
                    time.sleep(0.1)
            finally:  # a second Ctrl-C ends them at once
                for process in running:
                    process.kill()
            raise
    if failed:
        said = "\n".join([f"{len(failed)} of {len(runs)} runs failed, the others are kept:", *failed])
        raise MacaronError(f"{said}\nWhen the cause is removed, continue with: {same_command()}")
