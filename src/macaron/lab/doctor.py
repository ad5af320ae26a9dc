"""Whether this machine can train and translate: versions, GPU, threads, then a tiny run of the real thing."""

import io
import platform
import random
import shutil
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
    """What was found, and what to do about it.

    :param state: ``warn``: slower or poorer than it could be; ``fail``: it does not work
    """

    state: Literal["ok", "warn", "fail"]
    text: str
    remedy: str = ""


def examine() -> Iterator[Finding]:
    """Examine the machine; each finding is yielded when it is made."""
    yield Finding("ok", f"Python {platform.python_version()}, {platform.system()} on {platform.machine()}")
    found = list(packages())
    yield from found
    if any(each.state == "fail" for each in found):
        return  # what follows would fail with a message that says less
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

    driver = Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None
    if torch.cuda.is_available():
        facts = torch.cuda.get_device_properties(0)
        others = f", and {torch.cuda.device_count() - 1} more" if torch.cuda.device_count() > 1 else ""
        text = f"GPU: {facts.name}, {facts.total_memory / 1e9:.0f} GB{others}"
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Finding("ok", text)
        return Finding("warn", f"{text}, without bfloat16", "train with --set train.precision=float32")
    if driver and torch.version.cuda is None:
        remedy = "install PyTorch for GPUs: pip install --force-reinstall torch"
        return Finding("warn", "GPU: there is an NVIDIA driver, but this PyTorch is for CPUs only", remedy)
    if driver:
        remedy = f"update the driver for CUDA {torch.version.cuda}, and check CUDA_VISIBLE_DEVICES"
        return Finding("warn", "GPU: there is an NVIDIA driver, but PyTorch sees no GPU", remedy)
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

    step = "Preparing"
    try:
        with tempfile.TemporaryDirectory(prefix="macaron-doctor-") as name, redirect_stderr(io.StringIO()):
            recipe, paths = Path(name) / "doctor.toml", [f"data.root={name}", f"data.out={name}/data"]
            recipe.write_text(asset(recipe.name), encoding="utf-8")
            _write_corpus(recipe.parent)
            prepare(load_data_recipe(recipe, paths), workers=1)
            step, started = "Training", time.monotonic()
            train_run(load_recipe(recipe, paths), Path(name) / "run", resume=False)
            losses = [loss for _, loss in RunFolder(Path(name) / "run").values("loss")]
            text = f"{step}: {len(losses)} updates in {time.monotonic() - started:.1f} s, "
            text += f"loss {losses[0]:.2f} to {losses[-1]:.2f}"
            yield Finding("ok", text) if losses[-1] < losses[0] else Finding("fail", text, _REINSTALL)
            step = "Translation"
            translator, started = Translator(Path(name) / "run"), time.monotonic()
            translator.translate(["eins zwei drei"])
            yield Finding("ok", f"{step}: a short sentence in {1000 * (time.monotonic() - started):.0f} ms")
    except Exception as error:  # whatever it is: it is what the user wants to know
        reason = str(error).strip() or type(error).__name__
        yield Finding("fail", f"{step}: {reason}", _REINSTALL)


def _write_corpus(folder: Path) -> None:
    draw = random.Random(1)
    for split, count in (("train", 600), ("valid", 20)):
        lines = [draw.choices(list(_WORDS), k=draw.randint(2, 6)) for _ in range(count)]
        texts = {"de": lines, "en": [[_WORDS[word] for word in line] for line in lines]}
        for language, words in texts.items():
            text = "".join(" ".join(line) + "\n" for line in words)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
