"""Memory of the plan of an epoch, by the size of the corpus.

    python benchmarks/plan_memory.py --pairs 10000000 100000000 --out docs/results/plan-memory.json

The pairs are random tokens, 4 to 20 on a side. Each size is measured in a process of its own: all sections of the first
epoch are planned, the next one in the background as in training, and a batch of each is collated. Memory is the largest
anonymous part of the resident set (RssAnon) since the task was made; pages of the mapped token store, which the system
takes back when it needs them, are not counted.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

BLOCK = 1 << 20


def main() -> None:
    """Measure each size, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, nargs="+", default=[10_000_000, 100_000_000])
    parser.add_argument("--batching", choices=("bucket", "pack"), default="pack")
    parser.add_argument("--folder", type=Path, help="where the corpora are written; some 60 bytes a pair")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options.measure, options.batching)))
        return
    rows = []
    for pairs in options.pairs:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            generate(Path(folder), pairs)
            command = [sys.executable, __file__, "--measure", f"{folder}/data", "--batching", options.batching]
            row = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        rows.append({"pairs": pairs, "batching": options.batching, **row})
        print(rows[-1], flush=True)
    if options.out:
        command_line = "python benchmarks/plan_memory.py --pairs " + " ".join(map(str, options.pairs))
        found = {"command": f"{command_line} --batching {options.batching}", "rows": rows}
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def generate(folder: Path, pairs: int) -> None:
    """A prepared folder: a few lines by ``macaron prepare``, then its training pairs are replaced."""
    from macaron.data.store import StoreWriter

    random = np.random.default_rng(1)
    for name, count in (("train", 2000), ("valid", 50)):
        words = random.integers(0, 9000, (count, 8))
        for side in ("de", "en"):
            (folder / f"{name}.{side}").write_text("".join(" ".join(f"w{i}" for i in row) + "\n" for row in words))
    data = folder / "data"
    texts = ("--train", folder / "train", "--valid", folder / "valid", "--out", data)
    macaron("prepare", "--source-lang", "de", "--target-lang", "en", *texts)
    manifest = json.loads((data / "prepared.json").read_text())
    sizes = manifest["splits"]["train"]
    for side, name in (("de", "source_tokens"), ("en", "target_tokens")):
        with StoreWriter(data / f"train.{side}", manifest["vocab_size"]) as writer:
            for start in range(0, pairs, BLOCK):
                lengths = random.integers(4, 21, min(BLOCK, pairs - start))
                writer.append(random.integers(10, manifest["vocab_size"], int(lengths.sum()), np.int32), lengths)
        sizes[name] = writer.tokens
    sizes["pairs"] = pairs
    for corpus in sizes.get("corpora", []):
        corpus["pairs"] = pairs
    (data / "prepared.json").write_text(json.dumps(manifest))
    macaron("verify", data, "--accept")


def macaron(*arguments: object) -> None:
    """Run a command."""
    subprocess.run([sys.executable, "-m", "macaron", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def measured(data: Path, batching: str) -> dict[str, Any]:
    """Plan an epoch in this process."""
    import torch

    from macaron.recipe import load_recipe
    from macaron.tasks.translation import TranslationTask

    settings = (f"data.out={data}", "model.preset=macaron-tiny", f"train.batching={batching}")
    recipe = load_recipe(
        Path(__file__).parents[1] / "recipes" / "your-own.toml", [*settings, "train.batch_tokens=16384"]
    )
    before, over, largest = anonymous(), threading.Event(), [0]

    def look() -> None:
        while not over.wait(0.002):
            largest[0] = max(largest[0], anonymous())

    looking = threading.Thread(target=look)
    looking.start()
    started = time.monotonic()
    task = TranslationTask(recipe)
    batches = targets = 0
    for number in range(1, task.sections + 1):
        plan = task.plan(number)
        plan[0].collate(torch.device("cpu"))
        batches += len(plan)
        targets += sum(each.targets for each in plan)
        del plan  # as in the training loop, before the next one is asked for
    over.set()
    looking.join()
    return {
        "sections": task.sections,
        "micro_batches": batches,
        "target_tokens": targets,
        "seconds": round(time.monotonic() - started, 1),
        "anonymous_mib": round((largest[0] - before) / 2**20),
        "peak_resident_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10),
    }


def anonymous() -> int:
    """Bytes of anonymous memory that are resident."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


if __name__ == "__main__":
    main()
