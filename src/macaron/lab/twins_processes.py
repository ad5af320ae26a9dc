"""Several processes that train one run after the other, as torchrun has started them.

Every run joins a group of its own and leaves it. torchrun's store keeps what the last group wrote there, and a process
that is early would take it for the next group's. So each run gets a new store: the first process opens it and tells the
others its port, over the store that all of them know.
"""

import os
import socket
from datetime import timedelta
from typing import Any

#: The others may wait for as long as the first one takes to prepare a run.
_PATIENCE = timedelta(minutes=30)


def first_process() -> bool:
    """Whether this process speaks and writes."""
    return os.environ.get("RANK", "0") == "0"


class Meetings:
    """Where the processes of each run meet; alone, there is nothing to arrange."""

    def __init__(self) -> None:
        self._store: Any = None
        self._count = 0
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if "RANK" not in os.environ or world == 1:
            return
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        # torchrun's own store is there already; without torchrun the first process opens it.
        theirs = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        opens = first_process() and not theirs
        self._store = TCPStore(*place, world, opens, timeout=_PATIENCE)

    def next(self) -> None:
        """Arrange the meeting of the next run."""
        if self._store is None:
            return
        self._count += 1
        key = f"macaron-twins-{self._count}"
        if first_process():
            self._store.set(key, str(_free_port()))
        os.environ["MASTER_PORT"] = self._store.get(key).decode()
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
