"""Mistakes that need no torch: what all verbs check before they import it. Readers check again, and in full."""

import ctypes
import gc
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from macaron.errors import MacaronError, UsageError

if TYPE_CHECKING:
    from macaron.recipe import Recipe

_DEVICE = re.compile(r"(auto|cpu|cuda|mps|xpu)(:\d+)?")


def check_early(
    *,
    models: Sequence[Path | None] = (),
    kinds: Sequence[str] = (),
    runs: Sequence[Path | None] = (),
    data: Path | None = None,
    split: str | None = None,
    verify: bool = False,
    reads: Sequence[Path | None] = (),
    writes: Sequence[Path | None] = (),
    pages: Sequence[Path | None] = (),
    device: str = "auto",
    length_penalty: float | None = None,
    rate: float | None = None,
) -> None:
    """Check what a verb was given, each if it was.

    :param models: model folders, or runs, of models of these ``kinds``; by default of any
    :param runs: folders of runs of the same task
    :param data: a prepared folder, which has this `split`
    :param verify: read its files, too, that have not changed since they were last verified
    :param writes: files to write, into folders that exist; `pages`: files whose folders are made
    """
    from macaron.decode.settings import SearchSettings

    if _DEVICE.fullmatch(device) is None:
        raise UsageError(f"no device {device!r}: choose auto, cpu, cuda or cuda:0, cuda:1, ...")
    if rate is not None and not rate > 0:
        raise UsageError(f"--learning-rate must be above 0, not {rate}")
    if length_penalty is not None:
        SearchSettings(length_penalty=length_penalty)
    for folder in filter(None, models):
        _check_model(folder, *kinds)
    if runs:
        from macaron.lab.run_folder import RunFolder, check_same_task

        check_same_task([RunFolder(run) for run in filter(None, runs)])
    if split not in (None, "valid", "test"):
        raise UsageError(f"--split is valid or test, not {split!r}")
    if data is not None:
        from macaron.data.prepared import open_prepared, read_manifest

        manifest = read_manifest(data)
        if split is not None and manifest.get("kind", "pairs") == "pairs" and split not in manifest["splits"]:
            raise MacaronError(f"{data}: no split {split!r}; there is {', '.join(manifest['splits'])}")
        open_prepared(data).verify([] if split is None else [split], verify)
    for file in filter(None, reads):
        file.open("rb").close()
    for file in filter(None, (*writes, *pages)):
        if file.is_dir():
            raise UsageError(f"{file} is a folder: name a file in it")
        if file in writes and not file.parent.is_dir():
            raise UsageError(f"{file}: there is no folder {file.parent}. Make it, or write elsewhere.")


@contextmanager
def importing(device: str) -> Iterator[None]:
    """A context in which a verb imports torch, which takes seconds: without garbage collection.

    What is there afterwards stays to the end, and is never looked through again: a quarter of a sentence's time.
    The driver of the GPU on which the verb will work starts meanwhile, in another thread; neither needs the other.
    """
    kind, _, number = device.partition(":")
    if kind in ("auto", "cuda"):  # torchrun's processes have a GPU each
        threading.Thread(target=_start_driver, args=[int(number or os.environ.get("LOCAL_RANK", "0"))]).start()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _start_driver(number: int) -> None:
    """Make the context of a GPU that torch will use, too; nothing, if there is none or torch cannot use it."""
    found = find_spec("torch")
    with suppress(OSError, AttributeError, TypeError):
        if (Path(found.submodule_search_locations[0]) / "lib" / "libtorch_cuda.so").exists():  # type: ignore[union-attr, index]
            driver = ctypes.CDLL("libcuda.so.1")
            if not driver.cuInit(0):
                driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), number)


def check_recipe(recipe: "Recipe", out: Path, new: bool, verify: bool = False) -> None:
    """Check the folder of a run (``new``: it is not in use) and its data; of several processes the first one does."""
    from macaron.data.prepared import open_prepared
    from macaron.files import check_unused, writing
    from macaron.recipe import CONFIGURATIONS, manifest

    if os.environ.get("RANK", "0") == "0":  # the others may find what the first one has written
        if out.exists() and not out.is_dir():
            raise UsageError(f"{out} is a file: give a folder for the run")
        if new:
            check_unused(out)
        elif out.is_dir():
            with writing(out):  # now is early enough to say that another process does
                pass
        if new and recipe.model.source is not None:  # a run is resumed without it
            try:
                _check_model(Path(recipe.model.source), CONFIGURATIONS[recipe.task].kind)
            except MacaronError as error:
                raise MacaronError(f"{recipe.origin.prefix(('model', 'from'))}{error}") from None
        if not (out / "recipe.toml").is_file():  # a finished run does without its data
            manifest(recipe)
        if new or verify:
            open_prepared(recipe.data).verify(["train", "valid"], verify)


def _check_model(folder: Path, *kinds: str) -> None:
    """A stopped run has no model folder yet, but may have a checkpoint that will do."""
    from macaron.models.load import find_folder

    if not (folder / "recipe.toml").is_file() or (folder / "model" / "config.json").is_file():
        find_folder(folder, *kinds)


def is_language_model(path: Path) -> bool:
    """Whether a path is that of a language model, or of a run with one."""
    from macaron.models.load import model_kind, run_model

    folder = run_model(path) or path
    return (folder / "config.json").is_file() and model_kind(folder) == "language"
