"""Where the time of a first sentence goes, from the start of a process: one sentence by ``macaron translate``.

    python benchmarks/gpu_start.py MODEL --out docs/results/gpu/start.json

The command runs as it is, then with a clock in it, which says when each step ended; so in turn. The time that counts
is that of the command as it is. The first process of all reads its files from the disk. Times are seconds.
"""

import argparse
import functools
import importlib.util
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

TEXT = "wir wissen , dass der junge die tür schließt ."
#: Ways to import torch, as Python code.
IMPORTS = {
    "import torch": "import torch",
    "without plug-ins": "import os; os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '0'; import torch",
    "without garbage collection": "import gc; gc.disable(); import torch",
    "without garbage collection, left at once": "import gc, os; gc.disable(); import torch; os._exit(0)",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    command = ["translate", str(options.model), "--device", options.device]
    command += ["--dtype", options.dtype] if options.dtype else []
    if options.steps:
        sys.argv = ["macaron", *command]
        with_a_clock(options.steps)
    result: dict[str, Any] = {"command": [], "steps": [], "imports": {name: [] for name in IMPORTS}}
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    # An installer need not compile: then Python reads torch's source each time, which takes seconds.
    result["torch is compiled to bytecode"] = Path(importlib.util.cache_from_source(torch.origin)).exists()
    for _ in range(options.turns):
        result["command"].append(timed([sys.executable, "-m", "macaron", *command], TEXT))
        arguments = [sys.executable, __file__, *sys.argv[1:], "--steps", str(time.time())]
        result["steps"].append(timed(arguments, TEXT, said=True))
        for name, code in IMPORTS.items():
            result["imports"][name].append(timed([sys.executable, "-c", code]))
        options.out.write_text(json.dumps(result, indent=1))
    print(json.dumps(result, indent=1))


def timed(command: list[str], text: str = "", said: bool = False) -> dict[str, Any]:
    """Seconds of a process: by the clock, of processors, and reads from the disk in blocks; what it said at last."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, input=text + "\n", capture_output=True, text=True, check=False)
    seconds, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr)
    fields = {"user": "ru_utime", "system": "ru_stime", "blocks": "ru_inblock", "major faults": "ru_majflt"}
    used = {name: round(getattr(after, field) - getattr(before, field), 2) for name, field in fields.items()}
    last = json.loads(done.stdout.splitlines()[-1]) if said and not done.returncode else {}
    return {"seconds": round(seconds, 2), **used, "exit": done.returncode, **last}


def with_a_clock(begun: float) -> NoReturn:
    """Run the command; print the steps, and calls inside them, with the time at which each ended."""
    steps: list[Any] = []
    calls: list[Any] = []
    real_exit = os._exit

    def mark(name: str) -> None:
        steps.append([name, round(time.time() - begun, 3), round(time.process_time(), 3)])

    def watch(owner: Any, name: str, step: str | None = None) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def timed_call(*arguments: Any, **named: Any) -> Any:
            start = time.time()
            try:
                return original(*arguments, **named)
            finally:
                if step is not None:
                    mark(step)
                elif len(calls) < 60:
                    calls.append([name, round(start - begun, 3), round(time.time() - start, 4)])

        setattr(owner, name, timed_call)

    def leave(code: int) -> NoReturn:
        mark("left")
        found = sorted(
            {name for name in sys.modules if name in ("torch._dynamo", "sympy", "scipy", "triton", "pandas")}
        )
        print(json.dumps({"steps": steps, "calls": calls, "modules": found}), flush=True)
        real_exit(code)

    mark("python")
    from macaron.__main__ import run
    from macaron.cli import translate as verb

    mark("macaron.cli")
    importing = verb.importing

    @contextmanager
    def watched(device: str) -> Iterator[None]:
        with importing(device):
            import torch  # noqa: F401

            mark("import torch")
            yield
        mark("import translator")
        from macaron.decode import forced, gpu, search, translator
        from macaron.models import load
        from macaron.text import pipeline

        for owner, name in (
            (forced, "load_model"),
            (forced, "model_tokenizer"),
            (load, "check"),
            (pipeline, "_moses_tools"),
            (translator, "with_kernels"),
            (translator, "fit_texts"),
            (translator, "translate_ids"),
            (search.Scorer, "__init__"),
            (search.Scorer, "step"),
            (gpu.RecordedSteps, "_record"),
            (gpu.RecordedSteps, "__call__"),
        ):
            if hasattr(owner, name):
                watch(owner, name)
        watch(translator.Translator, "__init__", "Translator")
        watch(translator.Translator, "translate_nbest", "sentence")

    verb.importing = watched
    watch(verb, "check_early", "check_early")
    os._exit = leave
    run()
    raise SystemExit("the command did not leave by os._exit")


if __name__ == "__main__":
    main()
