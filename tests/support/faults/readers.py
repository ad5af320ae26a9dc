"""The readers: a file that is damaged, a command that reads it, and what is right.

The list holds every kind of file that Macaron reads. Most readers are commands, called as ``macaron`` calls them.
"""

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from faults import mutations as m
from faults import oracles as o
from faults.world import COLUMNS, FAST, GLUE

MODEL = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")


@dataclass(frozen=True)
class Reader:
    """A file and a command.

    :param file: the file that is damaged; of an option: the text that it replaces
    :param command: its arguments; ``{}`` stands for the option
    :param needs: files and folders of the world that the command needs
    :param results: files that it writes, besides its output
    :param right: says what is wrong with an accepted file
    :param sealed: the folder whose digests cover the file
    :param names: further words that a message may have instead of the file's name
    :param share: cases, relative to other readers
    """

    name: str
    file: str
    mutation: m.Mutation
    command: tuple[str, ...]
    needs: tuple[str, ...]
    results: tuple[str, ...] = ()
    right: o.Oracle = o.typed
    sealed: str | None = None
    names: tuple[str, ...] = ()
    share: float = 1.0

    @property
    def option(self) -> bool:
        return any("{}" in argument for argument in self.command)


def _json_lines(text: str) -> None:
    for line in text.split("\n"):
        if line.strip():
            json.loads(line)


TRANSLATE = ("translate", "run", "--input", "lines.txt", "--output", "out.txt", "--one-per-line")
RESUME = ("train", "--resume", "--out", "stopped")
TRAINED = ("new/model/model.safetensors",)
RESUMED = ("stopped/model/model.safetensors",)
ONE_UPDATE = ("--set", "train.max_updates=1", "--out", "new")
STORE = ("data/train.src.ids", "data/train.src.offsets", "data/train.tgt.ids", "data/tokenizer/tokenizer.json")
WORDS = ("data.", "train.", "model.", "decode.", "pretrain.", "corpus", "[data]")
PREPARE = ("prepare", "pairs.toml", "--workers", "1")


def _prepare() -> Iterator[Reader]:
    yield Reader(
        "recipe, prepare", "pairs.toml", m.toml, PREPARE, ("pairs.toml", "corpus"), STORE, o.typed_toml, names=WORDS
    )
    yield Reader(
        "recipe, train",
        "pairs.toml",
        m.toml,
        ("train", "pairs.toml", *ONE_UPDATE),
        ("pairs.toml", "data"),
        TRAINED,
        o.typed_toml,
        names=WORDS,
        share=0.5,
    )
    text = ("text/train.ids", "text/tokenizer/tokenizer.json")
    yield Reader(
        "recipe of text",
        "text.toml",
        m.toml,
        ("prepare", "text.toml", "--workers", "1"),
        ("text.toml", "corpus"),
        text,
        o.typed_toml,
        names=WORDS,
    )
    yield Reader(
        "--set",
        "data.max_words=100",
        options_set,
        (*PREPARE, "--set", "{}"),
        ("pairs.toml", "corpus"),
        STORE,
        o.anything,
        names=("--set", *WORDS),
    )
    yield Reader(
        "corpus", "corpus/train.src", m.text, PREPARE, ("pairs.toml", "corpus"), STORE, o.prepared("train.src")
    )
    yield Reader(
        "corpus .gz",
        "gz/train.src.gz",
        m.gz,
        ("prepare", "gz.toml", "--workers", "1"),
        ("gz.toml", "gz"),
        STORE,
        o.prepared("train.gz"),
    )
    yield Reader(
        "corpus .xz",
        "xz/train.tgt.xz",
        m.xz,
        ("prepare", "xz.toml", "--workers", "1"),
        ("xz.toml", "xz"),
        STORE,
        o.prepared("train.xz"),
    )
    yield Reader(
        "plain text",
        "corpus/text.txt",
        m.text,
        ("prepare", "text.toml", "--workers", "1"),
        ("text.toml", "corpus"),
        text,
        o.anything,
    )
    for name, mutation, right in (
        ("lines.zip", m.zipped, o.unpacked),
        ("lines.tar.gz", m.tar, o.unpacked),
        ("sgm.tar.gz", m.tar, o.anything),
    ):
        recipe, files = f"{name.replace('.', '-')}.toml", ("packed/x.src", "packed/x.tgt")
        yield Reader(
            f"archive {name}",
            f"packed/downloads/{name}",
            mutation,
            ("prepare", recipe, "--workers", "1"),
            (recipe, "packed"),
            files,
            right,
            names=("packed/x.",),
        )
    yield Reader(
        "Wikipedia's dump",
        "packed/downloads/wiki.xml.bz2",
        m.bz,
        ("prepare", "dump.toml", "--workers", "1"),
        ("dump.toml", "packed"),
        ("packed/wiki.txt",),
        o.dump,
        names=("wiki.txt",),
    )


def _data() -> Iterator[Reader]:
    train, needs = ("train", "pairs.toml", *ONE_UPDATE), ("pairs.toml", "data")
    yield Reader(
        "prepared.json, train", "data/prepared.json", m.as_json, train, needs, TRAINED, sealed="data", share=0.5
    )
    yield Reader(
        "prepared.json, evaluate",
        "data/prepared.json",
        m.as_json,
        ("evaluate", "run", "--data", "data"),
        ("run", "data"),
        (),
        sealed="data",
        names=("data/",),
    )
    yield Reader(
        "prepared.json, prepare",
        "data/prepared.json",
        m.as_json,
        PREPARE,
        (*needs, "corpus"),
        STORE,
        o.same_files,
        sealed="data",
    )
    yield Reader("store header", "data/train.src.json", m.as_json, train, needs, TRAINED, sealed="data", share=0.5)
    yield Reader(
        "store ids", "data/train.src.ids", m.numbers("<u2"), train, needs, TRAINED, o.store, sealed="data", share=0.5
    )
    yield Reader(
        "store offsets",
        "data/train.tgt.offsets",
        m.numbers("<u8"),
        train,
        needs,
        TRAINED,
        o.store,
        sealed="data",
        share=0.5,
    )
    yield Reader(
        "data tokenizer",
        "data/tokenizer/tokenizer.json",
        m.as_json,
        train,
        needs,
        TRAINED,
        o.equal,
        sealed="data",
        names=("data/tokenizer",),
        share=0.5,
    )
    yield Reader(
        "store documents",
        "text/train.documents",
        m.numbers("<u8"),
        ("train", "text.toml", *ONE_UPDATE),
        ("text.toml", "text"),
        TRAINED,
        o.anything,
        sealed="text",
        share=0.5,
    )
    yield Reader(
        "test references",
        "data/test.tgt",
        m.text,
        ("evaluate", "run", "--data", "data"),
        ("run", "data"),
        (),
        o.anything,
        sealed="data",
        share=0.5,
    )


def _models() -> Iterator[Reader]:
    needs, out = ("run", "lines.txt"), ("out.txt",)
    for file, mutation, right in zip(
        MODEL,
        (m.as_json, m.as_json, m.as_json, m.as_json, m.safetensors),
        (o.typed, o.typed, o.equal, o.typed, o.tensors),
        strict=True,
    ):
        yield Reader(
            file,
            f"run/model/{file}",
            mutation,
            TRANSLATE,
            needs,
            out,
            right,
            sealed="run/model",
            names=("run/model", "run:"),
        )
    yield Reader(
        "digests.json", "run/model/digests.json", m.as_json, TRANSLATE, needs, out, o.anything, names=("run/model",)
    )
    yield Reader(
        "int8",
        "run/model/model.safetensors",
        m.safetensors,
        (*TRANSLATE, "--int8"),
        needs,
        out,
        o.tensors,
        sealed="run/model",
        names=("run/model",),
        share=0.5,
    )
    sharded = ("translate", "shards", *TRANSLATE[2:])
    yield Reader(
        "sharded index",
        "shards/model.safetensors.index.json",
        m.as_json,
        sharded,
        ("shards", "lines.txt"),
        out,
        o.equal,
        sealed="shards",
        names=("shards",),
    )
    yield Reader(
        "encoder config",
        "bert/model/config.json",
        m.as_json,
        ("embed", "bert", "--input", "lines.txt"),
        ("bert", "lines.txt"),
        sealed="bert/model",
        names=("bert/model",),
    )
    yield Reader(
        "classifier config",
        "classifier/model/config.json",
        m.as_json,
        ("predict", "classifier", "--input", "lines.txt"),
        ("classifier", "lines.txt"),
        sealed="classifier/model",
        names=("classifier/model",),
    )
    yield Reader(
        "train --from",
        "run/model/config.json",
        m.as_json,
        ("train", "pairs.toml", "--from", "run", *ONE_UPDATE),
        ("run", "data", "pairs.toml"),
        TRAINED,
        sealed="run/model",
        names=("run/model", "run:", "model."),
        share=0.3,
    )
    yield Reader(
        "prepare --tokenizer",
        "run/model/tokenizer.json",
        m.as_json,
        (*PREPARE, "--set", "data.tokenizer=run"),
        ("run", "corpus", "pairs.toml"),
        STORE,
        o.equal,
        sealed="run/model",
        names=("run/model", "run:"),
        share=0.5,
    )


def _runs() -> Iterator[Reader]:
    at = "stopped/checkpoints/update-00000002"
    resume = {
        "command": RESUME,
        "needs": ("stopped", "data"),
        "results": RESUMED,
        "sealed": at,
        "names": ("update-00000002",),
        "share": 0.5,
    }
    yield Reader("checkpoint state", f"{at}/state.json", m.as_json, **resume)
    yield Reader("checkpoint weights", f"{at}/weights.safetensors", m.safetensors, right=o.tensors, **resume)
    yield Reader("checkpoint optimiser", f"{at}/optimiser.safetensors", m.safetensors, right=o.tensors, **resume)
    yield Reader(
        "resumed recipe",
        "stopped/recipe.toml",
        m.toml,
        RESUME,
        ("stopped", "data"),
        RESUMED,
        o.typed_toml,
        names=WORDS,
        share=0.5,
    )
    yield Reader(
        "resumed metrics",
        "stopped/metrics.jsonl",
        m.json_lines,
        RESUME,
        ("stopped", "data"),
        RESUMED,
        o.equal,
        share=0.5,
    )
    page = {
        "command": ("report", "run", "--no-samples", "--out", "page.html"),
        "needs": ("run",),
        "results": ("page.html",),
        "names": ("run",),
    }
    compare = {
        "command": ("compare", "run", "other", "--out", "page.html", "--data", "data"),
        "needs": ("run", "other", "data"),
        "results": ("page.html",),
        "names": ("run",),
        "share": 0.5,
    }
    for file, mutation, parse in (
        ("recipe.toml", m.toml, tomllib.loads),
        ("metrics.jsonl", m.json_lines, _json_lines),
        ("summary.json", m.as_json, json.loads),
        ("environment.json", m.as_json, json.loads),
        ("checkpoints/update-00000004/state.json", m.as_json, json.loads),
        ("translations/{}", m.as_json, json.loads),
    ):
        name = file.replace("/{}", "").rpartition("/")[2]
        yield Reader(f"report, {name}", f"run/{file}", mutation, right=o.shown(parse), **page)
        if not file.startswith("checkpoints"):
            yield Reader(f"compare, {name}", f"run/{file}", mutation, right=o.shown(parse), **compare)
    for file in ("results.json", "settings.json"):
        yield Reader(
            f"report, fine-tuned {file}",
            f"classifier/{file}",
            m.as_json,
            ("report", "classifier", "--out", "page.html"),
            ("classifier",),
            ("page.html",),
            o.shown(json.loads),
            names=("classifier",),
            share=0.5,
        )
    yield Reader(
        "report, results.jsonl",
        "glue-run/results.jsonl",
        m.json_lines,
        ("report", "glue-run", "--out", "page.html"),
        ("glue-run",),
        ("page.html",),
        o.shown(_json_lines),
        names=("glue-run",),
    )


def _tables() -> Iterator[Reader]:
    tuned = ("new/model/model.safetensors",)
    for form in ("tsv", "csv"):
        command = (
            "finetune",
            "bert",
            "--train",
            f"train.{form}",
            "--dev",
            f"dev.{form}",
            *COLUMNS,
            *FAST,
            "--out",
            "new",
        )
        right = o.table("\t" if form == "tsv" else ",", 2, 1)
        yield Reader(
            f"table .{form}", f"train.{form}", m.text, command, ("bert", f"train.{form}", f"dev.{form}"), tuned, right
        )
    predict = ("predict", "classifier", "--input", "dev.tsv", "--output", "out.txt")
    yield Reader(
        "predict table", "dev.tsv", m.text, predict, ("classifier", "dev.tsv"), ("out.txt",), o.table("\t", 2, 1)
    )
    glue = ("glue", "bert", "--data", "glue", *GLUE, "--out", "new")
    yield Reader(
        "GLUE's files",
        "glue/CoLA/train.tsv",
        m.text,
        glue,
        ("bert", "glue"),
        ("new/results.json",),
        o.table("\t", 4, 0, ("0", "1")),
        share=0.2,
    )
    again = ("glue", "bert", "--data", "glue", *GLUE, "--out", "glue-run", "--resume")
    for file in ("results.jsonl", "run.json"):
        yield Reader(
            f"glue --resume, {file}",
            f"glue-run/{file}",
            m.json_lines if file.endswith("l") else m.as_json,
            again,
            ("bert", "glue", "glue-run"),
            ("glue-run/table.md",),
            o.typed_lines,
            names=("glue-run",),
            share=0.3,
        )
    yield Reader(
        "glue --check",
        "glue-run/submission.zip",
        m.zipped,
        ("glue", "--check", "glue-run/submission.zip"),
        ("glue-run/submission.zip",),
        (),
        o.equal,
        share=0.3,
    )


def _texts() -> Iterator[Reader]:
    out = ("out.txt",)
    yield Reader("translate", "lines.txt", m.text, TRANSLATE, ("run", "lines.txt"), out, o.aligned("lines.txt"))
    packed = ("translate", "run", "--input", "lines.txt.gz", *TRANSLATE[4:])
    yield Reader("translate .gz", "lines.txt.gz", m.gz, packed, ("run", "lines.txt.gz"), out, o.aligned("lines.txt.gz"))
    yield Reader(
        "score",
        "lines.txt",
        m.text,
        ("score", "run", "--source", "lines.txt", "--target", "lines.txt", "--output", "out.txt"),
        ("run", "lines.txt"),
        out,
        o.aligned("lines.txt"),
    )
    yield Reader(
        "embed",
        "lines.txt",
        m.text,
        ("embed", "bert", "--input", "lines.txt", "--output", "out.txt"),
        ("bert", "lines.txt"),
        out,
        o.aligned("lines.txt"),
    )
    yield Reader(
        "predict",
        "lines.txt",
        m.text,
        ("predict", "classifier", "--input", "lines.txt", "--output", "out.txt"),
        ("classifier", "lines.txt"),
        out,
        o.aligned("lines.txt"),
    )
    yield Reader(
        "evaluate --source",
        "corpus/test.src",
        m.text,
        ("evaluate", "run", "--source", "corpus/test.src", "--reference", "corpus/test.tgt"),
        ("run", "corpus"),
        (),
        o.anything,
        share=0.5,
    )
    yield Reader(
        "corpus note",
        "back.json",
        m.as_json,
        ("translate", "run", "--corpus", "lines.txt", "--out", "back"),
        ("run", "lines.txt", "back.json", "back.src", "back.tgt"),
        ("back.src",),
        names=("back",),
    )
    yield Reader(
        "options of translate",
        "--beam=2",
        numbers,
        (*TRANSLATE, "{}"),
        ("run", "lines.txt"),
        out,
        o.anything,
        names=("--",),
    )
    yield Reader(
        "scheme",
        '{"name": "x", "branches": [{"weight": 1.0, "steps": [["F", 1.0], ["G", 1.0]]}]}',
        m.as_json,
        ("ode", "show", "{}", "--json"),
        (),
        (),
        names=("scheme", "branch", "step", "coefficient", "weight", "operator"),
    )
    convert = ("convert", "fairseq", "foreign.pt", "--dict", "dict.txt", "--out", "new")
    yield Reader(
        "fairseq checkpoint", "foreign.pt", m.pickled, convert, ("foreign.pt", "dict.txt"), TRAINED_FLAT, o.converted
    )
    yield Reader(
        "fairseq dict.txt",
        "dict.txt",
        m.text,
        convert,
        ("foreign.pt", "dict.txt"),
        (*TRAINED_FLAT, "new/tokenizer.json"),
        o.anything,
    )
    yield Reader(
        "BPE codes",
        "codes.txt",
        m.text,
        (*convert, "--bpe", "codes.txt"),
        ("foreign.pt", "dict.txt", "codes.txt"),
        ("new/tokenizer.json",),
        o.anything,
    )


TRAINED_FLAT = ("new/model.safetensors",)
KEYS = (
    *(
        "data.max_words",
        "data.vocab_size",
        "data.vocab_multiple",
        "data.max_ratio",
        "data.min_words",
        "data.valid_every",
        "data.pipeline",
    ),
    *(
        "data.source_lang",
        "data.train",
        "data.root",
        "train.seed",
        "train.max_updates",
        "model.encoder_layers",
        "model.scheme",
        "decode.beam",
    ),
    *("data", "nothing.x", "data.nothing", "", "a.b.c.d", "data.train.0.path"),
)
NUMBERS = ("beam", "max-length", "length-penalty", "batch-tokens", "max-source-length", "threads", "nbest")


def options_set(draw: Random, data: bytes) -> bytes:
    """A ``--set``: any key with any value."""
    value = draw.choice([each for each in m.TOML_VALUES if len(each) < 100_000])  # the system's limit of an argument
    made = f"{draw.choice(KEYS)}{draw.choice(('=', '=', '=', '=', '', ' = '))}{value}"
    return (made if draw.random() < 0.9 else m.any_bytes(draw, data).decode("utf-8", "replace")).encode()


def numbers(draw: Random, data: bytes) -> bytes:
    """An option of the search."""
    values = (
        "0",
        "-1",
        "1",
        "2",
        "1000",
        "100000",
        "1000000000",
        "9" * 30,
        "nan",
        "inf",
        "1e308",
        "",
        "x",
        "0.5",
        m.MANY_DIGITS,
    )
    return f"--{draw.choice(NUMBERS)}={draw.choice(values)}".encode()


READERS = {reader.name: reader for part in (_prepare, _data, _models, _runs, _tables, _texts) for reader in part()}
