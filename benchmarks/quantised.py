"""What ``macaron quantise`` saves and costs: a model in float32, with ``--int8``, and its folder in int8, on a CPU.

    python benchmarks/quantised.py RUN --source valid.de.xz --reference valid.en.xz --out F.json

Each is loaded by a process of its own, on one thread. Memory is what the process holds after its first translation,
less what it held after ``import torch``.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common import command, environment, print_table, write_json


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def measure(model: str, int8: bool, source: str) -> dict[str, Any]:
    """Load a model and translate a file, in this process."""
    import torch

    before = resident()
    from macaron.decode.translator import Translator
    from macaron.files import read_lines

    lines = list(read_lines(source))
    torch.set_num_threads(1)
    translator = Translator(model, device="cpu", int8=int8)
    translator.translate(lines[0], one_per_line=True)
    memory = resident() - before
    return {
        "precision": translator.precision,
        "parameters": None if translator.int8 else translator.model.num_parameters(),
        "memory_bytes": memory,
        "translations": translator.translate(lines, one_per_line=True),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model folder in float32, or the folder of a run")
    parser.add_argument("--source", required=True, help="plain text, one sentence to a line")
    parser.add_argument("--reference", help="its translation")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    parser.add_argument("--measure", choices=("int8", "saved"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.model, arguments.measure == "int8", arguments.source)))
        return
    import torch

    from macaron.evaluate.scores import sacre_bleu
    from macaron.files import one_line, read_lines
    from macaron.models.load import find_folder
    from macaron.models.quantise import quantise

    folder = find_folder(arguments.model, "translation")
    with TemporaryDirectory() as place:
        small = Path(place) / "small"
        quantise(folder, small)
        found = {}
        for name, model, how in (
            ("float32", folder, "saved"),
            ("--int8", folder, "int8"),
            ("quantised", small, "saved"),
        ):
            own = [sys.executable, __file__, str(model), "--source", arguments.source, "--measure", how]
            each = json.loads(subprocess.run(own, check=True, capture_output=True, text=True).stdout)
            found[name] = {"folder_bytes": sum(file.stat().st_size for file in model.iterdir()), **each}
    references = list(read_lines(arguments.reference))
    texts = {name: [one_line(text) for text in each.pop("translations")] for name, each in found.items()}
    for name, each in found.items():
        each["sacrebleu"] = round(sacre_bleu(texts[name], references).score, 2)
        each["as_in"] = {other: sum(a == b for a, b in zip(texts[name], texts[other], strict=True)) for other in texts}
    columns = ["", "folder MB", "memory MB", "sacreBLEU", "as in float32", "as with --int8"]
    rows = [
        [
            *(
                name,
                f"{each['folder_bytes'] / 1e6:.1f}",
                f"{each['memory_bytes'] / 1e6:.0f}",
                f"{each['sacrebleu']:.2f}",
            ),
            *(f"{each['as_in'][other] / len(references):.1%}" for other in ("float32", "--int8")),
        ]
        for name, each in found.items()
    ]
    print_table(columns, rows)
    if arguments.out is not None:
        numbers = {"sentences": len(references), "measured": found}
        write_json(arguments.out, {"command": command(), "environment": environment(torch.device("cpu")), **numbers})


if __name__ == "__main__":
    main()
