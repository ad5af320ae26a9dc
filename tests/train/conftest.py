"""A toy corpus (digits to be reversed), a tiny recipe, and a way to run real commands quickly."""

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from macaron.data.prepare import prepare
from macaron.recipe import data_recipe

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": "src", "TOKENIZERS_PARALLELISM": "false"}
RECIPE = """
[data]
out = "{data}"

[model]
preset = "macaron-tiny"
hidden_size = 32
num_attention_heads = 2
intermediate_size = 64
encoder_layers = 1
decoder_layers = 1

[train]
batch_tokens = 256
learning_rate = 0.003
warmup = 10
max_updates = 31
log_every = 7
validate_every = 10
checkpoint_every = 8
accumulate = 2
device = "cpu"

[decode]
beam = 2
max_length = 12
"""


def write_pairs(prefix: Path, count: int, generator: random.Random) -> None:
    digits = [[str(generator.randrange(10)) for _ in range(generator.randint(2, 8))] for _ in range(count)]
    prefix.with_suffix(".src").write_text("".join(" ".join(line) + "\n" for line in digits))
    prefix.with_suffix(".tgt").write_text("".join(" ".join(line[::-1]) + "\n" for line in digits))


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared folder of digit sequences and their reversals."""
    folder = tmp_path_factory.mktemp("toy")
    generator = random.Random(1)
    for name, count in (("train", 400), ("valid", 40), ("test", 40)):
        write_pairs(folder / name, count, generator)
    splits: dict[str, Any] = {name: [{"path": name}] for name in ("train", "valid", "test")}
    settings = {
        "source_lang": "src",
        "target_lang": "tgt",
        "out": str(folder / "prepared"),
        "root": str(folder),
        "vocab_size": 280,
        "remove_overlap": "none",
        "remove_duplicates": False,
        **splits,
    }
    return prepare(data_recipe({"data": settings}), workers=1).data.folder


@pytest.fixture(scope="session")
def recipe(toy: Path) -> Path:
    """A recipe of which an update takes some milliseconds."""
    path = toy.parent / "recipe.toml"
    path.write_text(RECIPE.format(data=toy))
    return path


@dataclass
class Command:
    """A running command."""

    pid: int
    output: Path
    server: "Server" = field(repr=False)

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        return int(self.server.ask(wait=self.pid)["code"])

    def until(self, path: Path, lines: int) -> None:
        """Wait until a file has so many lines."""
        deadline = time.monotonic() + 60
        while not path.exists() or path.read_bytes().count(b"\n") < lines:
            assert time.monotonic() < deadline, self.text
            time.sleep(0.001)

    @property
    def text(self) -> str:
        return self.output.read_text() if self.output.exists() else ""


class Server:
    """Forks ``macaron`` commands (see server.py)."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )

    def ask(self, **values: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(values) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def start(self, *arguments: object, **extra: Any) -> Command:
        """Start a command; see server.py for what can be asked besides."""
        self.count += 1
        output = self.folder / f"output-{self.count}"
        asked = self.ask(arguments=[str(a) for a in arguments], output=str(output), **extra)
        return Command(asked["pid"], output, self)

    def group(self, world: int, *arguments: object, last: dict[str, Any] | None = None) -> list[Command]:
        """Start a command in several processes, as torchrun does.

        :param last: what to ask for the last process besides, see server.py
        """
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return [
            self.start(
                *arguments,
                environment={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                **(last or {} if rank == world - 1 else {}),
            )
            for rank in range(world)
        ]

    def run_group(self, world: int, *arguments: object, code: int = 0) -> str:
        """Run a command in several processes to its end; returns what they printed."""
        commands = self.group(world, *arguments)
        codes = [command.wait() for command in commands]
        text = "".join(command.text for command in commands)
        assert codes == [code] * world, text
        return text

    def run(self, *arguments: object, code: int = 0, **extra: Any) -> str:
        """Run a command to its end; returns what it printed."""
        command = self.start(*arguments, **extra)
        found = command.wait()
        assert found == code, command.text
        return command.text


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Real processes, quickly started."""
    made = Server(tmp_path_factory.mktemp("outputs"))
    yield made
    assert made.process.stdin is not None
    made.process.stdin.close()
    made.process.wait()


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what depends on the clock."""
    clocks = ("time", "seconds", "tokens_per_second", "time_left")

    def timeless(record: dict[str, Any]) -> dict[str, Any]:
        return {k: timeless(v) if isinstance(v, dict) else v for k, v in record.items() if k not in clocks}

    return [timeless(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]


def assert_same_run(one: Path, other: Path) -> None:
    """Two runs ended with the same bits, and logged the same."""
    files = ["model/model.safetensors"]
    for path in sorted((one / "checkpoints").iterdir()):
        files += [f"checkpoints/{path.name}/{name}.safetensors" for name in ("weights", "optimiser")]
    assert sorted(p.name for p in (one / "checkpoints").iterdir()) == sorted(
        p.name for p in (other / "checkpoints").iterdir()
    )
    for name in files:
        ours, theirs = load_file(one / name), load_file(other / name)
        assert ours.keys() == theirs.keys()
        for key, tensor in ours.items():
            assert tensor.equal(theirs[key]), f"{name}: {key} differs"
    assert read_metrics(one) == read_metrics(other)


@pytest.fixture(scope="session")
def metrics() -> Callable[[Path], list[dict[str, Any]]]:
    return read_metrics


@pytest.fixture(scope="session")
def same_run() -> Callable[[Path, Path], None]:
    return assert_same_run
