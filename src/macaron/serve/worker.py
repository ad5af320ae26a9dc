"""A worker: the process that holds the models. It imports torch; the process that answers HTTP does not.

Lines of JSON come on standard input and go to standard output. The first line holds the settings; each further one is
a batch, ``{"model", "task", "items", "parameters"}``, whose items are answered one by one as they are done:
``{"item": 0, "result": ...}`` or ``{"item": 0, "error": ...}``, and ``{"done": true}`` at the end. The process ends
with its input. It ignores SIGTERM and SIGINT, which may be sent to all processes at once: its parent decides.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from macaron.errors import MacaronError

Send = Callable[[dict[str, Any]], None]


class Models:
    """The models of a worker, loaded."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import torch

        from macaron.decode.translator import Translator

        torch.set_num_threads(settings["threads"])
        self.folders = {each["name"]: each["folder"] for each in settings["models"]}
        device, int8 = settings["device"], settings["int8"]
        self.translators = {
            each["name"]: Translator(each["folder"], device=device, int8=int8)
            for each in settings["models"]
            if each["kind"] == "translation"
        }
        self.batch_tokens = max((each.batch_tokens for each in self.translators.values()), default=1024)

    def run(self, batch: dict[str, Any], send: Send) -> None:
        """Do a batch."""
        found = self.translators[batch["model"]].translate(batch["items"])
        for index, text in enumerate(found):
            send({"item": index, "result": [text]})


def main(read: BinaryIO, write: BinaryIO) -> None:
    """Answer until the input ends."""

    def send(message: dict[str, Any]) -> None:
        write.write(json.dumps(message).encode() + b"\n")
        write.flush()

    try:
        models = Models(json.loads(read.readline()))
    except MacaronError as error:
        send({"failed": str(error)})
        return
    send({"ready": True, "batch_tokens": models.batch_tokens})
    for line in read:
        models.run(json.loads(line), send)
        send({"done": True})


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not come among the answers
    main(sys.stdin.buffer, answers)
