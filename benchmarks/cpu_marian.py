"""CPU speed of a converted MarianMT model: ours, transformers and CTranslate2 on the same folder and the same text.

    pip install ctranslate2 sentencepiece  # peers; without them their rows are left out
    python benchmarks/cpu_marian.py OPUS-MT-FOLDER text.de --out docs/results/cpu-marian.json

OPUS-MT-FOLDER is a folder of transformers (Helsinki-NLP/opus-mt-de-en), which is converted to a temporary one. All
translate the same lines with the same beam, in batches of the same number of lines, sorted by length; the time of
loading is not counted. Systems take turns, numbers are medians over the turns.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import common
import torch
from common import number

from macaron import Translator
from macaron.convert import convert_huggingface
from macaron.files import read_lines

Run = Callable[[list[str]], list[str]]


def ours(folder: Path, options: argparse.Namespace, int8: bool) -> Run:
    translator = Translator(folder, device="cpu", threads=options.threads, int8=int8)
    tokens = options.batch * 64
    return lambda lines: translator.translate(lines, one_per_line=True, beam=options.beam, batch_tokens=tokens)


def transformers(folder: Path, options: argparse.Namespace) -> Run:
    from transformers import MarianMTModel, MarianTokenizer

    model, tokenizer = MarianMTModel.from_pretrained(folder).eval(), MarianTokenizer.from_pretrained(folder)

    def run(lines: list[str]) -> list[str]:
        found = []
        for start in range(0, len(lines), options.batch):
            batch = tokenizer(lines[start : start + options.batch], return_tensors="pt", padding=True, truncation=True)
            with torch.inference_mode():
                ids = model.generate(**batch, num_beams=options.beam, max_length=200)
            found += tokenizer.batch_decode(ids, skip_special_tokens=True)
        return found

    return run


def ctranslate2(folder: Path, options: argparse.Namespace, kind: str, work: Path) -> Run:
    import ctranslate2 as package
    from transformers import MarianTokenizer

    converted = work / "ctranslate2"
    if not converted.exists():
        package.converters.TransformersConverter(str(folder)).convert(str(converted))
    translator = package.Translator(str(converted), "cpu", compute_type=kind, intra_threads=options.threads)
    tokenizer = MarianTokenizer.from_pretrained(folder)

    def run(lines: list[str]) -> list[str]:
        sources = [tokenizer.convert_ids_to_tokens(tokenizer(line)["input_ids"]) for line in lines]
        results = translator.translate_batch(sources, beam_size=options.beam, max_batch_size=options.batch)
        ids = [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]
        return list(tokenizer.batch_decode(ids, skip_special_tokens=True))

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16, help="lines")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True, help="where to write the numbers as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    lines = sorted(islice((line for line in read_lines(options.text) if line.strip()), options.lines), key=len)
    with tempfile.TemporaryDirectory(prefix="macaron-benchmark-") as name:
        work = Path(name)
        convert_huggingface(options.folder, work / "ours")
        builders: dict[str, Callable[[], Run]] = {
            "ours float32": lambda: ours(work / "ours", options, False),
            "ours int8": lambda: ours(work / "ours", options, True),
            "transformers float32": lambda: transformers(options.folder, options),
            "ctranslate2 float32": lambda: ctranslate2(options.folder, options, "float32", work),
            "ctranslate2 int8": lambda: ctranslate2(options.folder, options, "int8", work),
        }
        systems: dict[str, Run] = {}
        result: dict[str, Any] = {"lines": len(lines), "left_out": {}, "seconds": {}, "same_as_transformers": {}}
        for system, build in builders.items():
            try:
                systems[system] = build()
                systems[system](lines[: options.batch])  # warm up
            except Exception as error:  # a package is missing
                systems.pop(system, None)
                result["left_out"][system] = common.failure(error)
        times: dict[str, list[float]] = {system: [] for system in systems}
        outputs: dict[str, list[str]] = {}
        for _ in range(options.turns):
            for system, run in systems.items():
                start = time.perf_counter()
                outputs[system] = run(lines)
                times[system].append(time.perf_counter() - start)
    wanted = outputs.get("transformers float32")
    rows = []
    for system, found in times.items():
        seconds = statistics.median(found)
        same = None if wanted is None else sum(map(str.__eq__, outputs[system], wanted)) / len(lines)
        result["seconds"][system], result["same_as_transformers"][system] = round(seconds, 3), same
        rows.append([system, number(len(lines) / seconds, ".1f"), number(same, ".2f")])
    result |= {"command": common.command(), "environment": common.environment(torch.device("cpu"))}
    common.write_json(options.out, result)
    common.print_table(["system", "lines/s", "same lines as transformers"], rows)


if __name__ == "__main__":
    main()
