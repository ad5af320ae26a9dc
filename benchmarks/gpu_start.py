"""Where the time of a first sentence goes, from the start of a process: one sentence by ``macaron translate``.

    python benchmarks/gpu_start.py MODEL --out docs/results/gpu/start.json

The command runs several times as it is; then a process does the same step by step and says when each step ended. The
first process of all reads its files from the disk. Times are seconds.
"""

import argparse
import functools
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXT = "wir wissen , dass der junge die tür schließt ."
#: Ways to import torch, as Python code.
IMPORTS = {
    "import torch": "import torch",
    "without plug-ins": "import os; os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '0'; import torch",
    "without garbage collection": "import gc; gc.disable(); import torch",
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
    if options.steps:
        step_by_step(options)
        return
    command = [sys.executable, "-m", "macaron", "translate", str(options.model), "--device", options.device]
    command += ["--dtype", options.dtype] if options.dtype else []
    result: dict[str, Any] = {"command": [], "steps": [], "imports": {name: [] for name in IMPORTS}}
    for _ in range(options.turns):
        result["command"].append(timed(command, TEXT))
        options.out.write_text(json.dumps(result, indent=1))
        arguments = [sys.executable, __file__, *sys.argv[1:], "--steps", str(time.time())]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        result["steps"].append(json.loads(done.stdout) if not done.returncode else done.stderr[-2000:])
        for name, code in IMPORTS.items():
            result["imports"][name].append(timed([sys.executable, "-c", code]))
        options.out.write_text(json.dumps(result, indent=1))
    print(json.dumps(result, indent=1))


def timed(command: list[str], text: str = "") -> dict[str, float]:
    """Seconds of a process: by the clock, of processors, and reads from the disk in blocks."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, input=text + "\n", capture_output=True, text=True, check=False)
    seconds, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr)
    fields = {"user": "ru_utime", "system": "ru_stime", "blocks": "ru_inblock", "major faults": "ru_majflt"}
    used = {name: round(getattr(after, field) - getattr(before, field), 2) for name, field in fields.items()}
    return {"seconds": round(seconds, 2), **used, "exit": done.returncode}


def step_by_step(options: argparse.Namespace) -> None:
    """Do what the command does; print the steps, and calls inside them, with the time at which each ended."""
    begun, steps, calls = options.steps, [], []

    def mark(name: str) -> None:
        steps.append([name, round(time.time() - begun, 3)])

    def watch(owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def timed_call(*arguments: Any, **named: Any) -> Any:
            start = time.time()
            try:
                return original(*arguments, **named)
            finally:
                if len(calls) < 60:
                    calls.append([name, round(start - begun, 3), round(time.time() - start, 4)])

        setattr(owner, name, timed_call)

    mark("python")
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    import macaron.cli  # noqa: F401
    from macaron.cli.early import check_early, importing

    mark("macaron.cli")
    check_early(models=[options.model], kinds=["translation"], device=options.device)
    mark("check_early")
    with importing(options.device):
        import torch

        mark("import torch")
        from macaron.decode import forced, gpu, search, translator
        from macaron.models import load

        mark("import translator")
    device = translator.choose_device(options.device)
    if device.type == "cuda":
        torch.zeros(1, device=device)
        mark("CUDA")
    for owner, name in (
        (forced, "load_model"),
        (forced, "model_tokenizer"),
        (load, "_read_weights"),
        (load, "check"),
        (translator, "with_kernels"),
        (search.Scorer, "__init__"),
        (search.Scorer, "step"),
        (gpu.RecordedSteps, "_record"),
        (gpu.RecordedSteps, "__call__"),
        (translator, "translate_ids"),
    ):
        if hasattr(owner, name):
            watch(owner, name)
    made = translator.Translator(options.model, device=options.device, dtype=options.dtype)
    mark("Translator")
    first = made.translate([TEXT])
    mark("first sentence")
    made.translate([TEXT])
    mark("again")
    modules = sorted({name for name in sys.modules if name in ("torch._dynamo", "sympy", "scipy", "triton", "pandas")})
    print(json.dumps({"steps": steps, "calls": calls, "translation": first, "modules": modules}))


if __name__ == "__main__":
    main()
