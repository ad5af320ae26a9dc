"""A small world of files that fuzzing starts from: everything that Macaron reads, written by its own commands."""

import bz2
import gzip
import io
import json
import lzma
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from faults.contents import ARCHIVES, BODIES, DUMP, FAST, FORM, HTML, KEYS, MIXED, MULTIPART, PAIRS, SRT, TEXT
from macaron.seal import seal

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
WORDS = ["the", "cat", "sat", "on", "a", "mat", "it", "was", "good", "bad", "and", "ran", "away", "from", "home"]
_NAMES = """corpus gz xz packed glue pairs.toml text.toml gz.toml xz.toml dump.toml lines-zip.toml lines-tar-gz.toml
sgm-tar-gz.toml train.tsv dev.tsv train.csv dev.csv lines.txt lines.txt.gz foreign.pt dict.txt codes.txt
doc.html doc.srt doc.txt keys.txt mixed.toml libre.json deepl.json openai.json features.json form.txt multipart.txt
data mixed text run other bert classifier glue-run stopped shards back.json"""
#: Everything that the world consists of.
NAMES = frozenset(_NAMES.split())
COLUMNS = ("--text", "text", "--label", "label")
GLUE = ("--tasks", "cola", "--seeds", "1", "--grid", "fixed", *FAST)


def _sentence(draw: random.Random, least: int = 3, most: int = 7) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(least, most)))


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def build(world: Path, run: Callable[..., None], wanted: set[str]) -> None:
    """Write all texts, and what is wanted of the folders that commands write; some seconds.

    :param run: runs a command of ours in that folder
    """
    _texts(world, random.Random(1))
    _archives(world)
    tune = ("finetune", "bert", "--train", "train.tsv", "--dev", "dev.tsv", *COLUMNS, *FAST, "--out", "classifier")
    # By what they write: what they need, and the command.
    commands: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
        "back.json": (("run",), ("translate", "run", "--corpus", "lines.txt", "--out", "back")),
        "classifier": (("bert",), tune),
        "glue-run": (("bert",), ("glue", "bert", "--data", "glue", *GLUE, "--out", "glue-run")),
        "bert": (("text",), ("train", "text.toml", "--out", "bert")),
        "text": ((), ("prepare", "text.toml", "--workers", "1")),
        "other": (("data",), ("train", "pairs.toml", "--out", "other", "--set", "model.scheme=lie-fg")),
        "shards": (("run",), ()),
        "stopped": (("run",), ()),
        "run": (("data",), ("train", "pairs.toml", "--out", "run")),
        "data": ((), ("prepare", "pairs.toml", "--workers", "1")),
        "mixed": ((), ("prepare", "mixed.toml", "--workers", "1")),
    }
    wanted = {need.partition("/")[0] for need in wanted}
    for name, (needs, _) in commands.items():
        wanted |= set(needs) if name in wanted else set()
    for name in reversed(commands):
        if name in wanted and commands[name][1]:
            run(*commands[name][1])
    if "run" in wanted:
        run("evaluate", "run", "--data", "data")
    if "stopped" in wanted:  # at update 2, without what is newer, and without what was best before
        shutil.copytree(world / "run", world / "stopped")
        for name in ("model", "translations", "checkpoints/update-00000004", "checkpoints/best-00000004"):
            shutil.rmtree(world / "stopped" / name)
        (world / "stopped" / "summary.json").unlink()
    if "shards" in wanted:
        _shards(world)


def _texts(world: Path, draw: random.Random) -> None:
    for name, count in (("train", 60), ("valid", 6), ("test", 6), ("more", 20)):
        lines = [_sentence(draw) for _ in range(count)]
        _write(world / "corpus" / f"{name}.src", lines)
        _write(world / "corpus" / f"{name}.tgt", [" ".join(reversed(line.split())) for line in lines])
    paragraphs = [f"{_sentence(draw, 5, 12)}. {_sentence(draw)}." if i % 4 else "" for i in range(80)]
    _write(world / "corpus" / "text.txt", paragraphs)
    (world / "pairs.toml").write_text(PAIRS)
    (world / "text.toml").write_text(TEXT)
    texts = {"mixed.toml": MIXED, "doc.html": HTML, "doc.srt": SRT, "doc.txt": "the cat sat. it ran\n\n* home\n"}
    texts |= {"keys.txt": KEYS, "form.txt": FORM, "multipart.txt": f"{MULTIPART}--mark--\r\n"}
    for name, content in (texts | {name: json.dumps(body) for name, body in BODIES.items()}).items():
        (world / name).write_text(content, newline="")
    for split in ("train", "dev"):
        labelled = [f"x\t{i % 2}\t\t{_sentence(draw)} {('bad', 'good')[i % 2]}" for i in range(32)]
        _write(world / "glue" / "CoLA" / f"{split}.tsv", labelled)
    rows = [f"{_sentence(draw)} {('bad', 'good')[i % 2]}\t{('no', 'yes')[i % 2]}" for i in range(32)]
    for name in ("train", "dev"):
        _write(world / f"{name}.tsv", ["text\tlabel", *rows])
        _write(world / f"{name}.csv", ["text,label", *(row.replace("\t", ",") for row in rows)])
    _write(world / "lines.txt", [_sentence(draw) for _ in range(6)])
    (world / "lines.txt.gz").write_bytes(gzip.compress((world / "lines.txt").read_bytes(), mtime=0))
    shutil.copy(GOLDEN / "tiny_plain_v1_trained" / "checkpoint_min.pt", world / "foreign.pt")
    shutil.copy(GOLDEN / "dict.txt", world / "dict.txt")
    _write(world / "codes.txt", ["#version: 0.2", "t h", "th e</w>", "c a", "ca t</w>"])


def _archives(world: Path) -> None:
    """The corpus once more: compressed, in a zip and a tar of lines, in a tar of segments; a dump of Wikipedia."""
    for form, code in (("gz", lambda data: gzip.compress(data, mtime=0)), ("xz", lzma.compress)):
        (world / form).mkdir()
        for path in (world / "corpus").glob("*.[st][rg][ct]"):
            (world / form / f"{path.name}.{form}").write_bytes(code(path.read_bytes()))
        (world / f"{form}.toml").write_text(PAIRS.replace('root = "corpus"', f'root = "{form}"'))
    folder = world / "packed" / "downloads"
    folder.mkdir(parents=True)
    for name, ending, form in (
        ("lines.zip", "", "lines"),
        ("lines.tar.gz", "", "lines"),
        ("sgm.tar.gz", ".sgm", "sgm"),
    ):
        members = {}
        for side in ("src", "tgt"):
            lines = (world / "corpus" / f"train.{side}").read_text().splitlines()
            tagged = "".join(
                f'<seg id="{i}"> {line} </seg>\n' if form == "sgm" else f"{line}\n" for i, line in enumerate(lines)
            )
            members[f"in/train.{side}{ending}"] = tagged.encode()
        if name.endswith(".zip"):
            with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
                for member, content in members.items():
                    archive.writestr(zipfile.ZipInfo(member), content)
        else:
            with tarfile.open(folder / name, "w:gz") as tar:
                for member, content in members.items():
                    entry = tarfile.TarInfo(member)
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
        (world / f"{name.replace('.', '-')}.toml").write_text(ARCHIVES.format(name=name, ending=ending, format=form))
    texts = (world / "corpus" / "text.txt").read_text().splitlines()
    pages = (
        f"<page><title>{i}</title><ns>0</ns><revision><text>{text}</text></revision></page>\n"
        for i, text in enumerate(texts)
    )
    (folder / "wiki.xml.bz2").write_bytes(bz2.compress(f"<mediawiki>\n{''.join(pages)}</mediawiki>\n".encode()))
    (world / "dump.toml").write_text(DUMP)


def _shards(world: Path) -> None:
    """The model in two files of weights with an index, as transformers writes large ones."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(world / "run" / "model", world / "shards")
    weights = load_file(world / "shards" / "model.safetensors")
    (world / "shards" / "model.safetensors").unlink()
    names = sorted(weights)
    index = {}
    for i, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-0000{i}-of-00002.safetensors"
        save_file({name: weights[name] for name in part}, world / "shards" / file, metadata={"format": "pt"})
        index |= dict.fromkeys(part, file)
    (world / "shards" / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    seal(world / "shards")
