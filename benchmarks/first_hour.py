"""The first hour of a new user: README's commands on a corpus, against settings chosen by hand.

    python benchmarks/first_hour.py translation --train FOLDER/train --valid FOLDER/valid --minutes 15 --out a.json
    python benchmarks/first_hour.py encoder --text wiki.txt.xz --sst2 SST-2 --minutes 15 --out b.json

translation: prepare, train, evaluate on the valid set. Each --variant "NAME: --set KEY=VALUE ..." is one more run, with
the given settings, on the same prepared data and in the same time. With --cores N all runs are made at once, each on N
cores of its own.
encoder: prepare --text, train, then finetune on SST-2 with the defaults, from the trained weights and from the random
weights of the same network, with several seeds; with --at-once N, N of them at a time, each with its part of the cores.
"""

import argparse
import json
import lzma
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the commands and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("translation", "encoder"))
    parser.add_argument("--train", help="prefix of the training pairs, .de and .en")
    parser.add_argument("--valid", help="prefix of the validation pairs")
    parser.add_argument("--text", action="append", default=[], help="a text file (repeatable)")
    parser.add_argument("--sst2", type=Path, help="folder with train.tsv and dev.tsv, or .xz")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--variant", action="append", default=[], help="NAME: options of macaron train (repeatable)")
    parser.add_argument("--cores", type=int, default=0, help="of each run; 0: one run after the other, on all cores")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=1, help="runs of macaron finetune at a time")
    parser.add_argument("--folder", type=Path, required=True, help="where data and runs are written")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    machine = {"cores": len(os.sched_getaffinity(0)), "processor": platform.machine(), "torch": version("torch")}
    run = translation if options.what == "translation" else encoder
    result = {"minutes": options.minutes, "machine": machine, **run(options)}
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def macaron(*arguments: object, cores: Sequence[int] = (), threads: int = 0) -> tuple[str, float]:
    """Run a command; what it prints on standard output, and its seconds.

    :param cores: it may use these alone; none: all
    :param threads: of its products; 0: as many as it likes
    """
    command = [sys.executable, "-m", "macaron", *map(str, arguments)]
    print("macaron", shlex.join(command[3:]), flush=True)
    pinned = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
    environment = os.environ | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
    started = time.monotonic()
    done = subprocess.run([*pinned, *command], stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return done.stdout, round(time.monotonic() - started, 1)


def trained(
    recipe: str, data: Path, out: Path, options: argparse.Namespace, *more: str, cores: Sequence[int] = ()
) -> dict[str, Any]:
    """Train a recipe, unless that is done; its settings and how it ended."""
    limits = ("--set", f"data.out={data}", "--minutes", options.minutes)
    if not (out / "summary.json").exists():
        macaron("train", recipe, *limits, "--out", out, *more, cores=cores)
    stored = tomllib.loads((out / "recipe.toml").read_text(encoding="utf-8"))
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return {"options": list(more), "model": stored["model"], "train": stored["train"], **summary}


def translation(options: argparse.Namespace) -> dict[str, Any]:
    """README's commands, and the variants."""
    data = options.folder / "data"
    macaron(
        *("prepare", "--source-lang", "de", "--target-lang", "en", "--train", options.train),
        *("--valid", options.valid, "--out", data),
    )
    texts = ("auto:", *options.variant)
    everywhere = sorted(os.sched_getaffinity(0))

    def run(number: int) -> tuple[str, dict[str, Any]]:
        name, _, settings = (part.strip() for part in texts[number].partition(":"))
        cores = everywhere[-(number + 1) * options.cores :][: options.cores] if options.cores else ()
        out = options.folder / name
        result = trained("your-own", data, out, options, *shlex.split(settings), cores=cores)
        scores, _ = macaron("evaluate", out, "--data", data, "--split", "valid", "--json", cores=cores)
        result["scores"] = json.loads(scores)
        print(name, json.dumps(result["scores"]), flush=True)
        return name, result

    with ThreadPoolExecutor(len(texts) if options.cores else 1) as pool:
        runs = dict(pool.map(run, range(len(texts))))
    return {"train": options.train, "valid": options.valid, "cores_of_a_run": options.cores, "runs": runs}


def encoder(options: argparse.Namespace) -> dict[str, Any]:
    """Pre-training, then SST-2 from trained and from random weights. Steps that are there already are not repeated."""
    data, out, random = (options.folder / name for name in ("text", "bert", "random"))
    said, seconds = macaron("prepare", *(part for text in options.text for part in ("--text", text)), "--out", data)
    manifest = json.loads((data / "prepared.json").read_text(encoding="utf-8"))
    described = {key: manifest[key] for key in ("pipeline", "vocab_size")}
    text = {"files": [Path(text).name for text in options.text], **described}
    if "up to date" not in said:
        text["prepare_seconds"] = seconds
    pretraining = trained("pretrain-mix", data, out, options)
    # The same network: the recipe that was stored, one update at a rate of nothing.
    nothing = ("max_updates=1", "learning_rate=1e-30", "max_minutes=", "weight_decay=0", "embeddings=random")
    settings = [part for setting in nothing for part in ("--set", f"train.{setting}")]
    if not (random / "summary.json").exists():
        macaron("train", out / "recipe.toml", *settings, "--out", random)
    for name in ("train", "dev"):
        if not (options.sst2 / f"{name}.tsv").exists():
            content = lzma.decompress((options.sst2 / f"{name}.tsv.xz").read_bytes())
            (options.folder / f"{name}.tsv").write_bytes(content)
    folder = options.folder if (options.folder / "dev.tsv").exists() else options.sst2
    sst2 = ("--train", folder / "train.tsv", "--dev", folder / "dev.tsv", "--text", "sentence", "--label", "label")

    threads = max(1, len(os.sched_getaffinity(0)) // options.at_once) if options.at_once > 1 else 0

    def tune(run: tuple[int, str, Path]) -> dict[str, Any]:
        seed, name, model = run
        tuned = options.folder / f"{name}-sst2-{seed}"
        if not (tuned / "results.json").exists():
            macaron("finetune", model, *sst2, "--seed", seed, "--out", tuned, threads=threads)
        found = json.loads((tuned / "results.json").read_text(encoding="utf-8"))
        accuracies = [epoch["scores"]["dev"]["accuracy"] for epoch in found["epochs"]]
        accuracy = found["scores"]["dev"]["accuracy"]
        return {
            "weights": name,
            "seed": seed,
            "accuracy": accuracy,
            "by_epoch": accuracies,
            "seconds": found["seconds"],
        }

    # By turns, so that what is there when it is stopped can be compared.
    order = [(seed, *each) for seed in range(1, options.seeds + 1) for each in (("trained", out), ("random", random))]
    with ThreadPoolExecutor(options.at_once) as pool:
        runs = list(pool.map(tune, order))
    means = {
        name: round(statistics.mean(run["accuracy"] for run in runs if run["weights"] == name), 2)
        for name in ("trained", "random")
    }
    return {"text": text, "pretraining": pretraining, "runs": runs, "means": means}


if __name__ == "__main__":
    main()
