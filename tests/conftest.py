"""Settings for all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every run: a test that fails now and then tells nobody what broke it.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Where MACARON_FORBID_SKIPS is set (CI), a skipped golden or browser test is a failure."""
    outcome = yield
    report = outcome.get_result()
    guarded = any(item.get_closest_marker(name) for name in ("golden", "browser"))
    if report.skipped and guarded and os.environ.get("MACARON_FORBID_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: skipped, which CI forbids for golden and browser tests"


@pytest.fixture
def shared() -> Path:
    """The folder of corpora and recorded numbers beside the project; a user's machine has none."""
    if not SHARED.is_dir():
        pytest.skip("no ../shared folder here")
    return SHARED
