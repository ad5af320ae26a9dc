"""Whether this machine can train and translate: versions, GPU, threads, then a tiny run of the real thing."""

import io
import platform
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from macaron.processes import available_cores

PACKAGE = "macaron-net"
_REINSTALL = f"{Path(sys.executable).name} -m pip install --force-reinstall {PACKAGE}; if that does not help, report it"
#: What a user sees of the requirements; the others are mentioned only if something is wrong with them.
_SHOWN = {"torch": "PyTorch", "transformers": "transformers"}
_WORDS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four", "fünf": "five", "sechs": "six"}


@dataclass(frozen=True)
class Finding:
    """What was found, and the remedy; ``warn``: slower or poorer than it could be, ``fail``: it does not work."""

    state: Literal["ok", "warn", "fail"]
    text: str
    remedy: str = ""


def examine() -> Iterator[Finding]:
    """Examine the machine; each finding is yielded when it is made."""
    yield Finding("ok", f"Python {platform.python_version()}, {platform.system()} on {platform.machine()}")
    found = list(packages())
    yield from found
    if all(each.state != "fail" for each in found):  # otherwise what follows would fail with a message that says less
        yield gpu()
        yield threads()
        yield from work()


def packages() -> Iterator[Finding]:
    """The installed packages against what Macaron requires."""
    try:
        required = [text for text in requires(PACKAGE) or [] if "extra ==" not in text]
    except PackageNotFoundError:
        required = list(_SHOWN)
        where = Path(__file__).parents[2]
        yield Finding("warn", f"{PACKAGE} is not installed: it runs from {where}", "pip install -e .")
    for text in required:
        needed = Requirement(text)
        try:
            found = version(needed.name)
        except PackageNotFoundError:
            yield Finding("fail", f"{needed.name} is not installed", f"pip install '{text}'")
            continue
        if not needed.specifier.contains(found, prereleases=True):
            yield Finding("fail", f"{needed.name} {found} is too old", f"pip install --upgrade '{text}'")
        elif needed.name in _SHOWN:
            yield Finding("ok", f"{_SHOWN[needed.name]} {found}")


def gpu() -> Finding:
    """The GPU, and whether PyTorch can use it."""
    import torch

    if torch.cuda.is_available():
        facts = torch.cuda.get_device_properties(0)
        text = f"GPU: {torch.cuda.device_count()} x {facts.name}, {facts.total_memory / 1e9:.0f} GB"
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Finding("ok", text)
        return Finding("warn", f"{text}, without bfloat16", "train with --set train.precision=float32")
    if Path("/proc/driver/nvidia/version").exists():
        text = f"GPU: there is an NVIDIA driver, but this PyTorch (CUDA: {torch.version.cuda}) sees no GPU"
        return Finding("warn", text, "install a PyTorch for the driver's CUDA, and check CUDA_VISIBLE_DEVICES")
    return Finding("ok", "GPU: none; the CPU is used")


def threads() -> Finding:
    """Cores, and the threads that PyTorch uses."""
    import torch

    cores, used = available_cores(), torch.get_num_threads()
    quota = Path("/sys/fs/cgroup/cpu.max")  # of a container
    limit, _, period = (quota.read_text() if quota.is_file() else "max").partition(" ")
    if limit.strip().isdigit():
        cores = min(cores, max(1, round(int(limit) / int(period))))
    text = f"CPU: {cores} cores, {used} threads, {torch.backends.cpu.get_cpu_capability()}"
    if used > cores:
        return Finding("warn", f"{text}: more threads than cores are slow", f"export OMP_NUM_THREADS={cores}")
    return Finding("ok", text)


def work() -> Iterator[Finding]:
    """Prepare, train and translate a tiny corpus of number words; the folder is removed."""
    from macaron.data.prepare import prepare
    from macaron.decode import Translator
    from macaron.lab.page import asset
    from macaron.lab.run_folder import RunFolder
    from macaron.recipe import load_data_recipe, load_recipe
    from macaron.tasks.run import run as train_run

    step, draw = "Preparing", random.Random(1)
    try:
        with tempfile.TemporaryDirectory(prefix="macaron-doctor-") as name, redirect_stderr(io.StringIO()):
            folder, paths = Path(name), [f"data.root={name}", f"data.out={name}/data"]
            recipe = folder / "doctor.toml"
            recipe.write_text(asset(recipe.name), encoding="utf-8")
            for split, count in (("train", 600), ("valid", 20)):
                text = "".join(" ".join(draw.choices(list(_WORDS), k=draw.randint(2, 6))) + "\n" for _ in range(count))
                (folder / f"{split}.de").write_text(text, encoding="utf-8")
                for german, english in _WORDS.items():
                    text = text.replace(german, english)
                (folder / f"{split}.en").write_text(text, encoding="utf-8")
            prepare(load_data_recipe(recipe, paths), workers=1)
            step, started = "Training", time.monotonic()
            train_run(load_recipe(recipe, paths), folder / "run", resume=False)
            losses = [loss for _, loss in RunFolder(folder / "run").values("loss")]
            text = f"{step}: {len(losses)} updates in {time.monotonic() - started:.1f} s, "
            text += f"loss {losses[0]:.2f} to {losses[-1]:.2f}"
            yield Finding("ok", text) if losses[-1] < losses[0] else Finding("fail", text, _REINSTALL)
            step = "Translation"
            translator, started = Translator(folder / "run"), time.monotonic()
            translator.translate(["eins zwei drei"])
            yield Finding("ok", f"{step}: a short sentence in {1000 * (time.monotonic() - started):.0f} ms")
    except Exception as error:  # whatever it is: it is what the user wants to know
        yield Finding("fail", f"{step}: {str(error).strip() or type(error).__name__}", _REINSTALL)
