"""Everything that ``macaron serve`` is told."""

from dataclasses import dataclass
from pathlib import Path

from macaron.errors import UsageError


@dataclass(frozen=True)
class ServeSettings:
    """How to serve.

    :param host: the address to listen on; by default this machine only
    :param port: 0 takes any that is free
    :param device: ``auto`` (the GPU if there is one), ``cpu``, ``cuda``, ``cuda:1``
    :param int8: on the CPU, matrices in 8 bits
    :param workers: processes that hold the models; the cores are divided between them. 0: one for each core, up to
        four, on a CPU; one on a GPU
    :param queue: requests that may wait; more are refused. So are those that would be done too late
    :param deadline: seconds until a request is given up, if it does not say otherwise
    :param file_deadline: the same for a file
    :param grace: seconds that running requests have after SIGTERM
    :param patience: seconds that a client has to send a request
    :param api_keys: a file of keys; without it everybody may ask
    :param requests_per_minute: of one key or client; 0: any number
    :param text_limit: characters of a request
    :param body_limit: bytes of a request, and of a file
    :param origins: of the pages that browsers may let ask (CORS)
    """

    host: str = "127.0.0.1"
    port: int = 5000
    device: str = "auto"
    int8: bool = False
    workers: int = 0
    queue: int = 1000
    deadline: float = 30.0
    file_deadline: float = 600.0
    grace: float = 20.0
    patience: float = 60.0
    api_keys: Path | None = None
    requests_per_minute: int = 0
    text_limit: int = 20_000
    body_limit: int = 4 << 20
    origins: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        for name in ("deadline", "file_deadline", "grace", "patience"):
            if not 0 < getattr(self, name) <= 86_400:
                given = f"{getattr(self, name):g}"
                raise UsageError(f"--{name.replace('_', '-')} must be above 0 and at most a day, not {given}")
        if self.int8 and self.device not in ("auto", "cpu"):
            raise UsageError(f"--int8 is for the CPU, not for {self.device}: leave it out, or choose --device cpu")
        for origin in self.origins:
            if origin != "*" and not origin.startswith(("http://", "https://")):
                raise UsageError(f"--cors takes an origin, such as https://example.org, or *; not {origin!r}")

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in ("127.0.0.1", "::1", "localhost") or self.host.startswith("127.")
