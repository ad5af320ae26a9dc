"""Runs ``macaron`` commands in forked processes: real processes that can be killed, without importing torch each time.

A line of JSON in: the arguments, and the file for what the command prints; a line out: the process's number. Or a
process's number in; when it has ended, its exit code out. A process can get a file as standard input (text) and one
for its errors, a working directory (cwd), variables (environment), a limit of the system (limit) and a small device
(memory, see small_device.py), train with recorded steps (recorded, see recorded_on_cpu.py), and be made to kill itself
at the Nth call of a function (kill_at).
"""

import contextlib
import importlib
import io
import json
import os
import pathlib
import resource
import signal
import sys
import time
import traceback
from typing import Any

import sacremoses  # noqa: F401
import torch

import macaron.cli

# What commands import when they run.
import macaron.data.prepare
import macaron.lab.report
import macaron.tasks.run
from macaron.decode import Translator  # noqa: F401
from macaron.evaluate import sacre_bleu  # noqa: F401
from recorded_on_cpu import recorded_on_cpu
from small_device import small_device

# torch imports a few things at the first backward only.
torch.ones(2, requires_grad=True).sum().backward()
torch.optim.AdamW([torch.ones(1, requires_grad=True)])
# As does typer when it is first called.
sys.argv = ["macaron", "recipe", "list"]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    macaron.cli.main()


def _kill_at(path: str, call: int) -> None:
    owner, name = _resolve(path)
    original, calls = getattr(owner, name), 0

    def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(owner, name, deadly)


def _resolve(path: str) -> tuple[Any, str]:
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        with contextlib.suppress(ImportError):
            owner: Any = importlib.import_module(".".join(parts[:length]))
            for part in parts[length:-1]:
                owner = getattr(owner, part)
            return owner, parts[-1]
    raise ValueError(path)


def _child(
    arguments: list[str],
    output: str,
    text: str = os.devnull,
    errors: str | None = None,
    cwd: str | None = None,
    environment: dict[str, str] | None = None,
    kill_at: list[Any] | None = None,
    limit: list[Any] | None = None,
    memory: list[Any] | None = None,
    recorded: str = "",
) -> None:
    os.environ.update(environment or {})
    os.dup2(os.open(text, os.O_RDONLY), 0)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for the whole process
    for stream, path in ((1, output), (2, errors or output)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), stream)
    os.chdir(cwd or ".")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a command that ran in the server has changed it
    sys.argv = ["macaron", *arguments]
    sys.modules["macaron.cli.train"].STARTED = time.monotonic()
    code = 0
    if kill_at:
        _kill_at(*kill_at)
    if memory:
        small_device(*memory)
    if recorded:
        recorded_on_cpu(recorded == "lacking")
    if limit:
        name, size = limit
        if name == "RLIMIT_AS":  # on top of what is there
            size += int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(getattr(resource, name), (size, size))
    try:
        macaron.cli.main()
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 99
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _reply(**values: object) -> None:
    print(json.dumps(values), flush=True)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            _, status = os.waitpid(asked["wait"], 0)
            _reply(code=os.waitstatus_to_exitcode(status))
            continue
        pid = os.fork()
        if pid == 0:
            _child(**asked)
        _reply(pid=pid)


if __name__ == "__main__":
    _main()
