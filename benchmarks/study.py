"""The study's runs: kinds of models with several seeds each, N runs at a time on one GPU, within a time limit.

    python benchmarks/study.py multi30k-en-de --set data.out=DATA --seeds 5 --jobs 12 --minutes 15 --out runs/study
    python benchmarks/study.py multi30k-en-de --set data.out=DATA --kinds lie-fg,r-drop,simcut --out runs/losses

Every run is a `macaron train`, then `macaron evaluate` of test and valid, in processes of their own: first all kinds
with seed 1, then with seed 2, and so on. At the end `macaron compare` compares the finished runs. The same command goes
on with what is not finished. Twelve runs of Multi30k at a time keep one H200 busy, under CUDA MPS
(``nvidia-cuda-mps-control -d``). `macaron twins` does the same where one setting is varied.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import common

from macaron.recipe import load_recipe
from macaron.shipped import shipped

CONTROL = {
    "model.prologue": '[["G", 0.5]]',
    "model.epilogue": '[["F", 1.0], ["G", 0.5]]',
    "model.decoder_prologue": '[["G", 0.5]]',
    "model.decoder_epilogue": '[["F", 1.0], ["H", 1.0], ["G", 0.5]]',
    "model.encoder_layers": "3",
    "model.decoder_layers": "3",
}
R_DROP, BPE_DROPOUT = {"train.consistency": "r-drop"}, {"train.bpe_dropout": "0.1"}
SIMCUT, WORD_DROPOUT = {"train.consistency": "simcut"}, {"train.word_dropout": "0.1"}
#: What each kind changes in the recipe.
KINDS: dict[str, dict[str, str]] = {
    "lie-fg": {},
    "strang-gfg": {"model.scheme": "strang-gfg"},
    "control": CONTROL,
    "parallel": {"model.scheme": "parallel"},
    "velocity": {"model.velocity": '{beta=0.5, mu=0.5, learned="channel"}'},
    "swiglu": {"model.activation": "swiglu"},
    "r-drop": R_DROP,
    "simcut": SIMCUT,
    "bpe-dropout": BPE_DROPOUT,
    "word-dropout": WORD_DROPOUT,
    "r-drop+bpe-dropout": R_DROP | BPE_DROPOUT,
    "simcut+bpe-dropout": SIMCUT | BPE_DROPOUT,
    "r-drop+word-dropout": R_DROP | WORD_DROPOUT,
    "muon": {"train.optimiser": "muon", "train.learning_rate": "0.003"},
    "inner-dropout": {"model.attention_dropout": "0.1", "model.activation_dropout": "0.1"},
}
SPLITS = ("test", "valid")
STUDY = ["lie-fg", "strang-gfg", "control", "parallel", "velocity", "swiglu"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--kinds", default=",".join(STUDY), help="see KINDS")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=60, help="what is not finished then is stopped")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    kinds = options.kinds.split(",")
    path = Path(options.recipe)
    data = str(load_recipe(path if path.exists() else shipped(options.recipe), options.settings).data)
    options.out.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // options.jobs))}

    def call(*arguments: str, log: Path) -> bool:
        """Whether a command of macaron ended well before the end; what it says is added to the log."""
        if time.monotonic() > end:
            return False
        command = [sys.executable, "-m", "macaron", *arguments]
        with log.open("a") as file:
            left = end - time.monotonic()
            try:
                done = subprocess.run(command, stdout=file, stderr=file, env=environment, timeout=left, check=False)
            except subprocess.TimeoutExpired:
                return False
        return done.returncode == 0

    def folder(kind: str, seed: int) -> Path:
        return options.out / f"{kind}-seed{seed}"

    def run(kind: str, seed: int) -> bool:
        given = [*options.settings, *(f"{key}={value}" for key, value in KINDS[kind].items()), f"train.seed={seed}"]
        settings, made = [part for each in given for part in ("--set", each)], folder(kind, seed)
        log, began = made.with_suffix(".log"), time.monotonic()
        good = call("train", options.recipe, "--out", str(made), "--resume", *settings, log=log)
        good = good and all(call("evaluate", str(made), "--data", data, "--split", split, log=log) for split in SPLITS)
        print(f"{made.name}: {'finished' if good else 'not finished'}, {time.monotonic() - began:.0f} s", flush=True)
        return good

    wanted = [(kind, seed) for seed in range(1, options.seeds + 1) for kind in kinds]
    with ThreadPoolExecutor(options.jobs) as pool:
        finished = dict(zip(wanted, pool.map(lambda each: run(*each), wanted), strict=True))
    runs = [str(folder(kind, seed)) for kind in kinds for seed in range(1, options.seeds + 1) if finished[kind, seed]]
    lost = [folder(*each).name for each, good in finished.items() if not good]
    result = {"command": common.command(), "kinds": {kind: KINDS[kind] for kind in kinds}, "not finished": lost}
    common.write_json(options.out / "study.json", result)
    keys = {key for kind in kinds for key in KINDS[kind]} - {"model.scheme", *CONTROL}  # schemes may differ anyway
    varied = [part for key in sorted(keys) for part in ("--vary", key)]
    files = ["--out", str(options.out / "comparison.html"), "--json", str(options.out / "comparison.json")]
    end = max(end, time.monotonic() + 120)
    if len(runs) > 1 and not call("compare", *runs, *varied, *files, log=options.out / "compare.log"):
        print(f"macaron compare failed: see {options.out / 'compare.log'}")


if __name__ == "__main__":
    main()
