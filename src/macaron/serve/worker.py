"""A worker: the process that holds the models. It imports torch; the process that answers HTTP does not.

Lines of JSON come on standard input and go to standard output. The first line holds the settings, and is answered by
``{"budget": tokens, "device": ...}`` or ``{"failed": message}``. Each further line is a batch, ``{"model", "task",
"items", "options"}``. Its items are answered one by one, as soon as each is done, by ``{"item": index, "result": ...}``
or ``{"item": index, "error": message}``, without a message where the input is not to blame; ``{"done": true}`` ends the
batch. The process ends with its input, and ignores SIGTERM and Ctrl-C, which may reach all processes at once: its
parent decides when the work is done.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from macaron.decode.translator import Translator
from macaron.device import choose_device
from macaron.errors import MacaronError, log_failure
from macaron.lab.particles.build_data import assemble
from macaron.lab.particles.particles_page import particles_page
from macaron.lab.particles.traced_model import TracedModel
from macaron.tasks.classifier import Predictor
from macaron.tasks.embedder import Embedder
from macaron.tasks.mask_filler import MaskFiller

#: Is told the index of an item and its result.
Found = Callable[[int, Any], None]


class Models:
    """The models of a worker, by the first line that it is told."""

    def __init__(self, settings: dict[str, Any]) -> None:
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(settings["threads"])
        self.device = settings["device"]
        self.folders = {name: Path(folder) for name, (folder, _) in settings["models"].items()}
        self.translators: dict[str, Translator] = {}
        for name, (folder, task) in settings["models"].items():
            if task == "translation":
                self.translators[name] = Translator(folder, device=self.device, int8=settings["int8"])
                self.translators[name].translate("a")  # what is made once is made now
            else:
                _loaded(Predictor if task == "text_classification" else Embedder, Path(folder), self.device)
        self.budget = min((each.batch_tokens for each in self.translators.values()), default=1024)

    def run(self, model: str, task: str, items: Sequence[Any], options: dict[str, Any], found: Found) -> None:
        """Do a batch of one task."""
        if task == "translate":
            self._translate(model, items, found=found, **options)
            return
        folder, device = self.folders[model], self.device
        for index, item in enumerate(items):
            if task == "text_classification":
                found(index, _loaded(Predictor, folder, device).labels(item, **options))
            elif task == "fill_mask":
                found(index, _loaded(MaskFiller, folder, device).fill(item, **options))
            elif task == "feature_extraction":
                found(index, _loaded(Embedder, folder, device).embed(item, **options).tolist() if item else [])
            elif task == "particles":
                sentence = " ".join(item.split())
                traced = _loaded(TracedModel, folder).trace(sentence, ("encoder", "decoder"), None)
                found(index, particles_page(assemble(sentence, [traced])))
            else:
                raise MacaronError(f"there is no task {task!r}")

    def _translate(self, model: str, items: Sequence[str | list[str]], nbest: int, found: Found) -> None:
        """Translate sentences. Those in a list are aligned, too, after all have been translated."""
        translator, texts = self.translators[model], [item if isinstance(item, str) else item[0] for item in items]
        marked: dict[int, list[str]] = {}

        def told(index: int, best: list[Any]) -> None:
            made = [each.text for each in best]
            if isinstance(items[index], str):
                found(index, [(text, None) for text in made])
            else:
                marked[index] = made

        translator.translate_nbest(texts, nbest=nbest, bound=True, found=told)
        sources = [texts[index] for index, made in marked.items() for _ in made]
        aligned = iter(translator.align(sources, [text for made in marked.values() for text in made]))
        for index, made in marked.items():
            found(index, list(zip(made, islice(aligned, len(made)), strict=True)))


@cache
def _loaded(kind: Callable[..., Any], *arguments: Any) -> Any:
    return kind(*arguments)


def answer(models: Models, batch: dict[str, Any], chosen: Sequence[int], send: Callable[[Any], None]) -> None:
    """Do some items of a batch. Where they fail, they are tried one by one: one bad text is no harm to others."""
    model, task, items, options = (batch[name] for name in ("model", "task", "items", "options"))
    left = list(chosen)

    def found(place: int, result: Any) -> None:
        left.remove(chosen[place])
        send({"item": chosen[place], "result": result})

    try:
        models.run(model, task, [items[index] for index in chosen], options, found)
    except Exception as error:
        if len(chosen) > 1:
            for index in list(left):
                answer(models, batch, [index], send)
            return
        message = ""
        if isinstance(error, MacaronError):
            message = str(error).replace(str(models.folders[model]), model)  # paths are not for clients
        else:
            log_failure(task, error)
        send({"item": chosen[0], "error": message})


def main() -> None:
    """Answer until the input ends."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(5)  # the process that answers HTTP, and refuses what is too much, comes first
    write = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not come among the answers

    def send(message: dict[str, Any]) -> None:
        write.write(json.dumps(message).encode() + b"\n")
        write.flush()

    try:
        models = Models(json.loads(sys.stdin.buffer.readline()))
    except MacaronError as error:
        send({"failed": str(error)})
        return
    send({"budget": models.budget, "device": choose_device(models.device).type})
    for line in sys.stdin.buffer:
        batch = json.loads(line)
        answer(models, batch, range(len(batch["items"])), send)
        send({"done": True})


if __name__ == "__main__":
    main()
