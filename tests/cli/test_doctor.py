"""``macaron doctor`` trains and translates, and what is wrong comes with a remedy."""

import re
from pathlib import Path

import pytest

from forked import macaron_text
from macaron.lab import doctor


def test_a_machine_that_works(tmp_path: Path):
    done = macaron_text("doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    states = [line[:5].strip() for line in done.stdout.splitlines()]
    assert set(states) <= {"ok", "warn", ""}  # a remedy is indented
    assert done.stderr == ""
    found = re.search(r"^ok +Training: 30 updates in [\d.]+ s, loss ([\d.]+) to ([\d.]+)$", done.stdout, flags=re.M)
    assert found
    assert float(found[2]) < 0.6 * float(found[1])
    for what in ("Python 3", "PyTorch 2", "transformers 5", "GPU: ", r"CPU: \d+ cores", "Translation: "):
        assert re.search(rf"^(ok|warn) +{what}", done.stdout, flags=re.M), what
    assert not list(tmp_path.iterdir())


def test_a_machine_that_cannot_write(tmp_path: Path):
    done = macaron_text("doctor", cwd=tmp_path, limit=("RLIMIT_FSIZE", 20_000))
    assert done.returncode == 1
    assert re.search(r"^fail +(Preparing|Training): .*\n +-> ", done.stdout, flags=re.M), done.stdout


def test_packages_that_are_old_or_missing(monkeypatch: pytest.MonkeyPatch):
    wanted = ["torch>=99.1", "transformers>=5.9", "no-such-package>=2", 'pytest>=99; extra == "dev"']
    monkeypatch.setattr(doctor, "requires", lambda _: wanted)
    old, fine, missing = doctor.packages()
    assert (old.state, old.remedy) == ("fail", "pip install --upgrade 'torch>=99.1'")
    assert (fine.state, fine.remedy) == ("ok", "")
    assert (missing.state, missing.remedy) == ("fail", "pip install 'no-such-package>=2'")
    # Nothing else is tried with such packages.
    assert [each.state for each in doctor.examine()] == ["ok", "fail", "ok", "fail"]


def test_more_threads_than_cores(monkeypatch: pytest.MonkeyPatch):
    import torch

    assert doctor.threads().state in ("ok", "warn")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert doctor.threads().state == "ok"
        monkeypatch.setattr(doctor, "available_cores", lambda: 0)
        assert (doctor.threads().state, doctor.threads().remedy[:22]) == ("warn", "export OMP_NUM_THREADS")
    finally:
        torch.set_num_threads(threads)
