"""CPU speed of a converted MarianMT model: ours, transformers and CTranslate2 on the same folder and the same text.

    pip install ctranslate2 sentencepiece  # peers; without them their rows are left out
    python benchmarks/cpu_marian.py OPUS-MT-FOLDER text.de --out docs/results/cpu-marian.json

OPUS-MT-FOLDER is a folder of transformers (Helsinki-NLP/opus-mt-de-en), which is converted to a temporary one. All
translate the same lines with the same beam, in batches of the same number of lines, sorted by length; the time of
loading is not counted. Systems take turns, numbers are medians over the turns.

``--random`` first makes the folder: the size of OPUS-MT's models, random weights, a vocabulary of the text. Such a
model does not end its translations, so sources are random tokens and every system is forced to ``--tokens`` in and out,
end included. What the systems write is the same where they search in the same way (``--beam 1``).
"""

import argparse
import json
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
from macaron.decode import SearchSettings, translate_ids
from macaron.files import read_lines

Run = Callable[[list[Any]], list[str]]
#: By how much our numbers of pieces are higher than those in a random folder: ours has four special tokens first.
SHIFT = 2


def random_folder(folder: Path, text: Path, vocabulary: int = 32_000) -> None:
    """Write a MarianMT folder of OPUS-MT's size with random weights."""
    import sentencepiece
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True)
    for side in ("source", "target"):  # of the same text
        prefix, options = str(folder / side), {"hard_vocab_limit": False, "minloglevel": 2}
        trainer = sentencepiece.SentencePieceTrainer
        trainer.train(input=str(text), model_prefix=prefix, vocab_size=vocabulary, **options)
        Path(f"{prefix}.model").rename(f"{prefix}.spm")
    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.spm")
    names = [pieces.id_to_piece(index) for index in range(3, pieces.get_piece_size())]
    names = ["</s>", "<unk>", *names, "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(names)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    torch.manual_seed(1)
    last = len(names) - 1
    layers = {"encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
    heads = {"d_model": 512, "encoder_attention_heads": 8, "decoder_attention_heads": 8}
    special = {"pad_token_id": last, "decoder_start_token_id": last, "eos_token_id": 0, "forced_eos_token_id": None}
    others = {"activation_function": "swish", "scale_embedding": True, "max_position_embeddings": 512}
    model = MarianMTModel(MarianConfig(vocab_size=len(names), **layers, **heads, **special, **others)).eval()
    for parameter in filter(lambda each: each.dim() > 1 and each.requires_grad, model.parameters()):
        torch.nn.init.normal_(parameter, 0, 0.05)  # large enough that the next token matters
    model.save_pretrained(folder)


def written(made: list[Any], options: argparse.Namespace) -> list[str]:
    """Forced translations as text, without the last token, which is the end in ours alone."""
    assert {len(each) for each in made} == {options.tokens}, {len(each) for each in made}
    return [" ".join(map(str, each[:-1])) for each in made]


def ours(folder: Path, options: argparse.Namespace, int8: bool) -> Run:
    translator = Translator(folder, device="cpu", threads=options.threads, int8=int8)
    tokens = options.batch * 64
    if options.random:
        steps = options.tokens - 1  # the search takes one more, for the end
        settings = SearchSettings(beam=options.beam, min_length=steps, max_length=steps)

        def forced(sources: list[list[int]]) -> list[str]:
            given = [[index + SHIFT for index in source[:-1]] + [2] for source in sources]
            batches = (given[start : start + options.batch] for start in range(0, len(given), options.batch))
            made = [
                best[0].tokens
                for batch in batches
                for best in translate_ids(translator.searched, batch, settings, nbest=1)
            ]
            return written([[index - SHIFT for index in each] for each in made], options)

        return forced
    return lambda lines: translator.translate(lines, one_per_line=True, beam=options.beam, batch_tokens=tokens)


def transformers(folder: Path, options: argparse.Namespace) -> Run:
    from transformers import MarianMTModel, MarianTokenizer

    length = {"min_new_tokens": options.tokens, "max_new_tokens": options.tokens}
    model, tokenizer = MarianMTModel.from_pretrained(folder).eval(), MarianTokenizer.from_pretrained(folder)

    def run(lines: list[str]) -> list[str]:
        found = []
        for start in range(0, len(lines), options.batch):
            batch = lines[start : start + options.batch]
            if options.random:
                with torch.inference_mode():
                    ids = model.generate(torch.tensor(batch), num_beams=options.beam, **length)
                found += written(ids[:, 1:].tolist(), options)
                continue
            batch = tokenizer(batch, return_tensors="pt", padding=True, truncation=True)
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
        ids = lines if options.random else tokenizer(lines)["input_ids"]
        sources = [tokenizer.convert_ids_to_tokens(each) for each in ids]
        names = ("min_decoding_length", "max_decoding_length")
        length = dict.fromkeys(names, options.tokens) if options.random else {}
        results = translator.translate_batch(sources, beam_size=options.beam, max_batch_size=options.batch, **length)
        ids = [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]
        return written(ids, options) if options.random else list(tokenizer.batch_decode(ids, skip_special_tokens=True))

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--random", action="store_true", help="make the folder, with random weights")
    parser.add_argument("--tokens", type=int, default=24, help="of --random")
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16, help="lines")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True, help="where to write the numbers as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.random:
        random_folder(options.folder, options.text)
    lines: list[Any] = sorted(islice(filter(str.strip, read_lines(options.text)), options.lines), key=len)
    if options.random:
        size = (len(lines), options.tokens - 1)
        lines = [[*source, 0] for source in torch.randint(2, 8_000, size).tolist()]  # pieces, and the end
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
        result: dict[str, Any] = {
            "lines": len(lines),
            "random": options.random,
            "left_out": {},
            "seconds": {},
            "turns": {},
            "same_as_transformers": {},
        }
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
        result["turns"][system] = [round(each, 3) for each in found]
        same = None if wanted is None else sum(map(str.__eq__, outputs[system], wanted)) / len(lines)
        result["seconds"][system], result["same_as_transformers"][system] = round(seconds, 3), same
        rows.append([system, number(len(lines) / seconds, ".1f"), number(same, ".2f")])
    result |= {"command": common.command(), "environment": common.environment(torch.device("cpu"))}
    common.write_json(options.out, result)
    common.print_table(["system", "lines/s", "same lines as transformers"], rows)


if __name__ == "__main__":
    main()
