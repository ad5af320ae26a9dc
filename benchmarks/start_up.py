"""Time from the start of a command to its end, in multiples of ``python -c "import torch"``.

    python benchmarks/start_up.py --out docs/results/start-up.json

One sentence is translated, classified and scored, by random models. The commands take turns with ``import torch``, so
that all see the same machine; numbers are medians over the turns, ratios are medians of the ratios within a turn. The
recipe with an unknown key is refused before torch is imported.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from macaron.models import EncoderForSequenceClassification, TranslationModel, preset
from macaron.text import MacaronTokenizer

#: A command takes at most this multiple of ``import torch``.
BAR = 1.8
TEXT = ["Hallo, wie geht es Ihnen?", "Die Katze sitzt auf der Matte."] * 20


def main() -> None:
    """Measure, print a table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--preset", default="macaron-small", help="of the translation model")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        commands = prepare(Path(folder), options.preset)
        for command in commands.values():
            seconds(command)  # files are read from the disk once
        turns = [{name: seconds(command) for name, command in commands.items()} for _ in range(options.turns)]
    rows = {
        name: {
            "seconds": round(statistics.median(turn[name] for turn in turns), 3),
            "ratio": round(statistics.median(turn[name] / turn["import torch"] for turn in turns), 2),
        }
        for name in commands
    }
    for name, row in rows.items():
        print(f"{name:24} {row['seconds']:6.2f} s   {row['ratio']:5.2f} x import torch")
    result = {
        "machine": {"processor": processor(), "python": platform.python_version(), "torch": version("torch")},
        "preset": options.preset,
        "turns": options.turns,
        "bar": BAR,
        "commands": rows,
    }
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def prepare(folder: Path, name: str) -> dict[str, list[str]]:
    """Write models and files, and return the commands to measure."""
    tokenizer = MacaronTokenizer.train(TEXT, 300)
    model = TranslationModel(preset(name, vocab_size=10000, tokenizer_fingerprint=tokenizer.fingerprint()))
    model.generation_config.max_length = 12
    encoder_tokenizer = MacaronTokenizer.train(TEXT, 300, kind="encoder")
    labels = {"id2label": {0: "no", 1: "yes"}, "problem_type": "single_label_classification"}
    fingerprint = encoder_tokenizer.fingerprint()
    config = preset("macaron-bert-tiny", vocab_size=300, tokenizer_fingerprint=fingerprint, **labels)
    classifier = EncoderForSequenceClassification(config)
    for each, its_tokenizer, path in ((model, tokenizer, "model"), (classifier, encoder_tokenizer, "classifier")):
        each.save_pretrained(folder / path)
        its_tokenizer.save_pretrained(folder / path)
    (folder / "text").write_text("Hallo\n", encoding="utf-8")
    (folder / "recipe.toml").write_text('[data]\nout = "data"\n[model]\ndropot = 0.1\n', encoding="utf-8")
    text, macaron = str(folder / "text"), [sys.executable, "-m", "macaron"]
    return {
        "import torch": [sys.executable, "-c", "import torch"],
        "macaron translate": [*macaron, "translate", str(folder / "model"), "--input", text],
        "macaron predict": [*macaron, "predict", str(folder / "classifier"), "--input", text],
        "macaron evaluate": [*macaron, "evaluate", str(folder / "model"), "--source", text, "--reference", text],
        "unknown key in a recipe": [*macaron, "train", str(folder / "recipe.toml"), "--out", str(folder / "run")],
    }


def seconds(command: list[str]) -> float:
    """Wall time of a command; only the one with the mistake may fail."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - start
    refused = "unknown key 'model.dropot'" in done.stderr
    if done.returncode and not refused:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return taken


def processor() -> str:
    """The processor's name."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
