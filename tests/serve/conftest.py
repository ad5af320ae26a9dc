"""Servers for the tests of this folder."""

from collections.abc import Callable, Iterator

import pytest

from served import CLASSIFIER, TRANSLATION, Served, start


@pytest.fixture(scope="session")
def server() -> Iterator[Served]:
    """A server of a translation model and a classifier, shared by all tests of this process."""
    served = start(TRANSLATION, CLASSIFIER)
    yield served
    code, errors = served.stop()
    assert code == 0, errors


@pytest.fixture
def start_server() -> Iterator[Callable[..., Served]]:
    """Starts servers of a test's own, with further arguments; they end with the test."""
    started: list[Served] = []

    def begin(*arguments: object) -> Served:
        started.append(start(*(arguments or (TRANSLATION,))))
        return started[-1]

    yield begin
    for served in started:
        served.process.kill()
        served.process.communicate()
