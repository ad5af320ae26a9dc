"""Output that cannot be written: one message, whatever the verb."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("arguments", [["models"], ["ode", "list"], ["--version"]], ids=" ".join)
@pytest.mark.parametrize(
    ("place", "reason"),
    [("&-", "Bad file descriptor"), ("/dev/full", "No space left on device")],
    ids=["closed", "full"],
)
def test_standard_output_that_is_closed_or_full(arguments: list[str], place: str, reason: str):
    command = ["sh", "-c", f'"$@" >{place}', "sh", sys.executable, "-m", "macaron", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"macaron: cannot write the output: {reason}\n"
