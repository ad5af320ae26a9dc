"""Runs cases: each in a folder of its own, in a forked process that a watchdog ends.

The process that forks has imported everything and has run every command once on undamaged files: a case takes some
hundredths of a second. It may use 10 s of a processor and 1 GB above what that process has; the system's limits
(RLIMIT_CPU, RLIMIT_DATA) end it, and the parent ends one that sleeps. Cases of a batch share a process: what one of
them leaves in memory is freed, or is no part of the next one's.
"""

import contextlib
import gc
import io
import json
import os
import resource
import select
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from faults.oracles import Accepted, Result, same_files
from faults.readers import READERS, Reader
from faults.world import build
from macaron.errors import MacaronError
from macaron.seal import DIGESTS, seal

WORK, MEMORY, ASLEEP, BATCH = 10, 1 << 30, 120, 40
#: Characters of all that a command says on stderr.
LONGEST_MESSAGE = 4000
#: How a case can end; all but the first two are faults.
CLASSES = ("clean error", "accepted", "wrong result", "traceback", "hang", "memory", "crash")


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    :param protected: digests covered the file and were left as they were
    """

    reader: str
    index: int
    kind: str
    detail: str = ""
    protected: bool = False


@dataclass
class Ended:
    """How a command ended in this process."""

    code: int
    errors: str
    result: Result
    crashed: BaseException | None = None


def _status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10


def call(folder: Path, arguments: Sequence[str], results: Sequence[str] = ()) -> Ended:
    """Run ``macaron`` in this process, as its program does; or send a request to its server (``POST``)."""
    from macaron.cli import main

    os.chdir(folder)
    if arguments[0] == "POST":
        return _post(*arguments[1:])
    # As Python opens them: a message may name an argument that is not UTF-8, a result may not.
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors, write_through=True)
        for errors in ("strict", "backslashreplace")
    )
    before, sys.argv = sys.argv, ["macaron", *arguments]
    code, crashed = 0, None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            crashed = _hidden(end)
        except BaseException as error:
            code, crashed = 99, error
        finally:
            sys.argv = before
    files = {"output": out.buffer.getvalue()}  # type: ignore[attr-defined]
    files |= {name: (folder / name).read_bytes() for name in results if (folder / name).is_file()}
    return Ended(code, err.buffer.getvalue().decode(), files, crashed)  # type: ignore[attr-defined]


def _post(path: str, kind: str, body: str, keys: str = "") -> Ended:
    from faults.http import ask

    try:
        status, content = ask(path, kind, Path(body).read_bytes(), Path(keys) if keys else None)
        json.loads(content)  # every answer is JSON, errors as well
    except MacaronError as error:  # before there is a server
        return Ended(1, str(error), {"output": b""})
    except Exception as error:
        return Ended(99, "", {"output": b""}, error)
    fault = RuntimeError(f"status {status}") if status >= 500 else None
    refused = keys == "" and status != 200
    return Ended(int(refused), content.decode() if refused else "", {"output": b"%d %s" % (status, content)}, fault)


def _hidden(error: BaseException | None) -> BaseException | None:
    """A lack of memory that another error hides."""
    while error is not None:
        if isinstance(error, MemoryError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _innermost(error: BaseException) -> str:
    """The last place in the toolkit, and the error."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/macaron/" in frame.filename]
    where = f"{frames[-1].filename.rpartition('/macaron/')[2]}:{frames[-1].lineno} {frames[-1].name}" if frames else "?"
    return f"{where}: {type(error).__name__}: {str(error)[:200]}"


@dataclass
class Campaign:
    """Cases of some readers.

    :param folder: where all files are
    :param needs: parts of the world that are wanted besides
    """

    seed: int
    folder: Path
    readers: Sequence[Reader] = field(default_factory=lambda: list(READERS.values()))
    needs: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        import torch

        torch.set_num_threads(1)
        self.world = self.folder / "world"
        self.world.mkdir(parents=True)
        build(self.world, self._must, {need for reader in self.readers for need in reader.needs} | self.needs)
        for i, reader in enumerate(self.readers):  # a stored score has its digest in its name
            if reader.file.endswith("/*"):
                found = next(self.world.glob(reader.file))
                self.readers = [
                    *self.readers[:i],
                    _renamed(reader, str(found.relative_to(self.world))),
                    *self.readers[i + 1 :],
                ]
        self.expected = {reader.name: self._expected(reader) for reader in self.readers}

    def _must(self, *arguments: object) -> None:
        done = call(self.world, [str(argument) for argument in arguments])
        if done.code:
            raise RuntimeError(f"macaron {arguments}: {done.errors}") from done.crashed

    def _expected(self, reader: Reader) -> Result:
        place = self._place(reader, "expected")
        done = call(place, [argument.replace("{}", reader.file) for argument in reader.command], reader.results)
        if done.code or len(done.result) != 1 + len(reader.results):
            raise RuntimeError(f"{reader.name}: {done.errors} {sorted(done.result)}") from done.crashed
        shutil.rmtree(place.parent)
        return done.result

    def _place(self, reader: Reader, name: str) -> Path:
        """A folder with what the reader needs; whatever appears beside it was written outside."""
        place = self.folder / name / "here"
        for need in reader.needs:
            source, target = self.world / need, place / need
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy2(source, target)
        place.mkdir(parents=True, exist_ok=True)
        return place

    def case(self, reader: Reader, index: int, place: Path) -> tuple[bytes, bytes, list[str], bool]:
        """Write a case's files; returns the file before and after, the command, and whether digests protect it."""
        draw = Random(f"{self.seed} {reader.name} {index}")
        before = reader.file.encode() if reader.option else (place / reader.file).read_bytes()
        after = before
        while after == before or (draw.random() < 0.15 and len(after) < 1 << 20):
            try:
                after = reader.mutation(draw, after)
            except Exception:  # a second damage that the first leaves no place for
                if after == before:
                    raise
        if reader.option:
            option = os.fsdecode(after.replace(b"\0", b""))
            return before, after, [argument.replace("{}", option) for argument in reader.command], False
        (place / reader.file).write_bytes(after)
        # Most damage is sealed again, or digests are removed, so that it reaches the reader.
        kind = draw.random() if reader.sealed else 1.0
        if reader.sealed and kind < 0.4:
            seal(place / reader.sealed)
        elif reader.sealed and kind < 0.7:
            (place / reader.sealed / DIGESTS).unlink()
        return before, after, list(reader.command), bool(reader.sealed) and kind >= 0.7

    def run_case(self, reader: Reader, index: int) -> Outcome:
        """Run a case in this process."""
        place = self._place(reader, f"{os.getpid()}-{index}")
        try:
            before, after, command, protected = self.case(reader, index, place)
            Path("/proc/self/clear_refs").write_text("5")
            start = _status("VmRSS")
            done = call(place, command, reader.results)
            used = _status("VmHWM") - start
            kind, detail = self._judge(reader, done, place, before, after, used)
            if protected and kind == "accepted" and reader.right is not same_files:  # which prepares anew
                kind, detail = "wrong result", "unnoticed, although there are digests"
            return Outcome(reader.name, index, kind, detail[:2000], protected)
        finally:
            os.chdir(self.folder)
            shutil.rmtree(place.parent, ignore_errors=True)

    def _judge(
        self, reader: Reader, done: Ended, place: Path, before: bytes, after: bytes, used: int
    ) -> tuple[str, str]:
        if done.crashed is not None:
            last = "".join(traceback.format_exception(done.crashed))
            short = isinstance(done.crashed, MemoryError) or "allocate memory" in last[-2000:]
            return "memory" if short else "traceback", _innermost(done.crashed)
        # A recipe without [model] trains the default preset, of 44 million parameters.
        if used > MEMORY and (not reader.file.endswith(".toml") or b"[model]" in after):
            return "memory", f"{used >> 20} MB"
        outside = sorted(path.name for path in place.parent.iterdir() if path != place)
        left = sorted(str(path.relative_to(place)) for path in place.rglob("*.partial"))
        if outside or left:
            return "wrong result", f"left behind: {outside or left}"
        if done.code:
            message = done.errors.strip().splitlines()[-1] if done.errors.strip() else ""
            where = Path(reader.file)
            names = (where.name, *reader.names) if not reader.option else reader.names
            if not any(name in done.errors for name in names):
                return "wrong result", f"the error does not name the file: {message[:300]}"
            # What click says of an option (2) repeats it: the user has typed it.
            if len(done.errors) > LONGEST_MESSAGE and done.code == 1:
                return "wrong result", f"a message of {len(done.errors):,} characters: {message[:300]}"
            return "clean error", message[:300]
        if done.result == self.expected[reader.name]:
            return "accepted", "the same result"
        wrong = reader.right(Accepted(before, after, self.expected[reader.name], done.result, place))
        return ("accepted", "takes effect") if wrong is None else ("wrong result", wrong)

    def run(self, plan: Sequence[tuple[Reader, int]]) -> Iterator[Outcome]:
        """Run cases in forked processes."""
        left = list(plan)
        while left:
            batch, left = left[:BATCH], left[BATCH:]
            done = 0
            for outcome in self._forked(batch):
                done += 1
                yield outcome
            left = batch[done:] + left

    def _forked(self, batch: Sequence[tuple[Reader, int]]) -> Iterator[Outcome]:
        """Outcomes of some cases, until one ends the process."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            self._child(batch, writing)
        os.close(writing)
        done, died = 0, ""
        with open(reading, encoding="utf-8") as answers:
            while True:
                # In parts: while all processes are suspended, at most one of them passes.
                if not any(select.select([answers], [], [], 1)[0] for _ in range(ASLEEP)):
                    os.kill(child, signal.SIGKILL)
                    died = "hang"
                line = answers.readline()
                if not line:
                    break
                done += 1
                yield Outcome(**json.loads(line))
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            raise RuntimeError(f"the harness itself failed in {batch[done][0].name}, case {batch[done][1]}")
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            kind = died or ("hang" if number == signal.SIGXCPU else "crash")
            reader, index = batch[done]
            yield Outcome(reader.name, index, kind, signal.Signals(number).name)
            shutil.rmtree(self.folder / f"{child}-{index}", ignore_errors=True)

    def _child(self, batch: Sequence[tuple[Reader, int]], writing: int) -> None:
        complain = os.dup(2)
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            gc.freeze()  # what all cases share
            for reader, index in batch:
                gc.collect()
                limit = _status("VmData") + MEMORY
                resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
                used = resource.getrusage(resource.RUSAGE_SELF)
                resource.setrlimit(
                    resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + WORK + 1, resource.RLIM_INFINITY)
                )
                outcome = self.run_case(reader, index)
                os.write(writing, (json.dumps(outcome.__dict__) + "\n").encode())
                if outcome.kind in ("traceback", "memory"):
                    break
        except BaseException:
            os.write(complain, traceback.format_exc().encode())
            os._exit(1)
        os._exit(0)


def _renamed(reader: Reader, file: str) -> Reader:
    from dataclasses import replace

    return replace(reader, file=file)


def plan(readers: Sequence[Reader], cases: int) -> list[tuple[Reader, int]]:
    """So many cases, divided among readers by their shares."""
    total = sum(reader.share for reader in readers)
    counts = [max(1, round(cases * reader.share / total)) for reader in readers]
    return [(reader, i) for reader, count in zip(readers, counts, strict=True) for i in range(count)]


def table(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """For each reader the number of cases of each class."""
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        counts.setdefault(outcome.reader, Counter())[outcome.kind] += 1
    return [
        {"reader": name, "cases": found.total(), **{kind: found[kind] for kind in CLASSES}}
        for name, found in counts.items()
    ]
