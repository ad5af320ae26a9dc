"""The Translator: text in, text out."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch

from macaron.decode.cpu.model import CpuTranslationModel
from macaron.decode.search import translate_ids
from macaron.decode.settings import Hypothesis, Sampling, SearchSettings, Stop
from macaron.decode.stream import LongLines, longest_start, pieces
from macaron.device import choose_device, choose_dtype
from macaron.errors import MacaronError
from macaron.models.configuration import TranslationConfig
from macaron.models.load import find_folder, load_model
from macaron.models.translation import TranslationModel
from macaron.text.load_tokenizer import model_tokenizer, verify
from macaron.text.pipeline import State
from macaron.text.special_tokens import tag_ids
from macaron.text.tokenizer import MacaronTokenizer

#: Source tokens in a batch, padding included.
_BATCH_TOKENS = {"cpu": 1024, "cuda": 65536}
_END = 1  # `</s>`, which every source ends with


class LineRefused(MacaronError):
    """A line is too long and was to be refused; nothing has been translated.

    :param index: its index among the given lines, so that those before it can still be translated
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class Translator:
    """A model with its tokenizer.

    >>> Translator("runs/demo/model").translate(["Guten Morgen!"])  # doctest: +SKIP
    ['Good morning!']

    :param model: a model folder (or the folder of a run), or a model in memory, which keeps its device and precision
        unless ``device`` or ``dtype`` is given
    :param tokenizer: that of a model in memory
    :param device: ``auto`` (the GPU if there is one), ``cpu``, ``cuda``, ``cuda:1``
    :param dtype: ``float32``, ``bfloat16``, ``float16``, ``float64``; by default that of the saved weights
    :param threads: CPU threads for PyTorch, for the whole process
    :param int8: on the CPU, round the matrices to 8 bits: faster, and nearly as good
    :param tag: what stands in front of every source: a tag that the model was trained with, such as ``<law>``

    On the CPU a model from a folder is searched with packed matrices (`macaron.decode.cpu`). A model in memory may
    still be trained and is searched directly, unless ``int8`` is given.
    """

    def __init__(
        self,
        model: str | Path | TranslationModel,
        tokenizer: MacaronTokenizer | None = None,
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype | None = None,
        threads: int | None = None,
        int8: bool = False,
        tag: str | None = None,
    ) -> None:
        if threads is not None:
            if threads < 1:
                raise MacaronError(f"threads must be 1 or more, not {threads}")
            torch.set_num_threads(threads)
        loaded = not isinstance(model, TranslationModel)
        if isinstance(model, TranslationModel):
            if tokenizer is None:
                raise MacaronError("a model in memory needs its tokenizer: Translator(model, tokenizer)")
            verify(tokenizer, model.config)
            where = model.device if device == "auto" else choose_device(device)
        else:
            where = choose_device("cpu" if int8 and device == "auto" else device)
            model, tokenizer = load_folder(model)
        precision = None if dtype is None else choose_dtype(dtype)
        if int8 and where.type != "cpu":
            raise MacaronError(f"int8 is for the CPU, not for {where}: leave --int8 out, or choose --device cpu")
        if int8 and precision not in (None, torch.float32):
            raise MacaronError(f"int8 goes with float32, not with {dtype}: leave out --int8 or --dtype")
        precision = torch.float32 if int8 else precision
        # On a GPU less precision is for the decoder's matrix products only: as fast, and nearer to float32.
        saved = model.embedding.tokens.weight.dtype
        products_only = where.type == "cuda" and precision in (torch.bfloat16, torch.float16) and saved == torch.float32
        self.half = precision if products_only else None
        self.model: TranslationModel = model.to(where, None if products_only else precision)
        fast = int8 or (loaded and where.type == "cpu" and self.model.embedding.tokens.weight.dtype == torch.float32)
        self.searched = CpuTranslationModel(self.model, int8) if fast else self.model
        self.tokenizer, self.tag = tokenizer, tag
        tag_ids(tokenizer, tag)  # refuse an unknown one now
        self.defaults = _folder_defaults(model)
        self.settings = SearchSettings(**self.defaults)
        self.batch_tokens = _BATCH_TOKENS.get(where.type, _BATCH_TOKENS["cpu"])

    def translate(self, lines: Sequence[str], **options: Any) -> list[str]:
        """The best translation of each line; the options are those of `translate_nbest`."""
        options.setdefault("nbest", 1)
        return [best[0].text for best in self.translate_nbest(lines, **options)]

    def translate_nbest(
        self,
        lines: Sequence[str],
        *,
        nbest: int | None = None,
        beam: int | None = None,
        length_penalty: float | None = None,
        max_length: int | None = None,
        unk_penalty: float = 0.0,
        stop: Stop = "early",
        sampling: Sampling | None = None,
        batch_tokens: int | None = None,
        long_lines: LongLines = "split",
        max_source_length: int | None = None,
        first_line: int = 1,
        state: State = "raw",
        tags: Sequence[str | None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best translations of each line with their scores, best first.

        An empty line has one translation, which is empty. Defaults of beam, length penalty and longest translation are
        those of the model folder (``generation_config.json``), otherwise 5, 1.0 and 200 tokens.

        :param nbest: translations of a line; by default the beam
        :param sampling: draw ``nbest`` samples instead of searching
        :param batch_tokens: source tokens in a batch, padding included
        :param long_lines: for lines of more than ``max_source_length`` tokens: ``split`` translates their parts
            (sentences if possible) and joins the translations, ``truncate`` cuts, ``refuse`` is an error
            (`LineRefused`)
        :param max_source_length: in tokens; by default 200, or ``max_length`` if that is more
        :param first_line: number of the first line, for messages and for the random numbers of a line
        :param state: ``moses`` if the lines are Moses tokens; the translations are then, too
        :param tags: the tag of each line; by default the translator's own
        """
        lines = _list_of_lines(lines)
        if sampling is not None:
            beam = nbest or beam or 1
        elif nbest is not None and beam is None:
            beam = max(self.settings.beam, nbest)
        given = {
            "beam": beam,
            "length_penalty": length_penalty,
            "max_length": max_length,
            "unk_penalty": unk_penalty,
            "stop": stop,
            "sampling": sampling,
        }
        changes: Any = {k: v for k, v in given.items() if v is not None and v != getattr(self.settings, k)}
        settings = replace(self.settings, **changes) if changes else self.settings
        nbest = settings.beam if nbest is None else nbest
        if not 1 <= nbest <= settings.beam:
            raise MacaronError(f"nbest must be between 1 and the beam ({settings.beam}), not {nbest}: widen the beam")
        if long_lines not in get_args(LongLines):
            raise MacaronError(f"long_lines must be one of {', '.join(get_args(LongLines))}, not {long_lines!r}")
        # The end of a source that is longer than the longest translation would be lost.
        usual = max(settings.max_length, SearchSettings.max_length)
        longest = max_source_length or min(usual, self.model.config.max_position_embeddings - _END)
        fronts = [tag_ids(self.tokenizer, tag) for tag in ([self.tag] * len(lines) if tags is None else tags)]
        longest -= max(map(len, fronts), default=0)
        # A line has several parts if it is split; the parts of all lines are translated together.
        parts = self._parts(lines, longest, long_lines, first_line, state)
        keys = [(first_line + line, part) for line, of_line in enumerate(parts) for part in range(len(of_line))]
        sources = [front + source for front, of_line in zip(fronts, parts, strict=True) for source in of_line]
        found = iter(self._translate(sources, keys, settings, nbest, batch_tokens or self.batch_tokens, state))
        return [_join([next(found) for _ in of_line], settings, nbest) for of_line in parts]

    def _parts(
        self, lines: Sequence[str], longest: int, long_lines: LongLines, first_line: int, state: State
    ) -> list[list[list[int]]]:
        """The token ids of each line's parts; an empty line has no parts."""
        parts: list[list[list[int]]] = []
        encode = partial(self.tokenizer.encode_lines, state=state)
        encoded = encode(list(lines))
        for index, (line, ids) in enumerate(zip(lines, encoded, strict=True)):
            if not line.strip() or len(ids) <= _END:
                parts.append([])
            elif len(ids) <= longest + _END:
                parts.append([ids])
            elif long_lines == "refuse":
                raise LineRefused(
                    f"line {first_line + index} has {len(ids) - _END} tokens, more than {longest}: shorten it or "
                    "split such lines (--long-lines split)",
                    index,
                )
            else:
                cut = pieces if long_lines == "split" else longest_start
                parts.append(encode(cut(line.strip(), lambda text: len(encode([text])[0]) <= longest + _END)))
        return parts

    def _translate(
        self,
        sources: Sequence[Sequence[int]],
        keys: Sequence[tuple[int, int]],
        settings: SearchSettings,
        nbest: int,
        batch_tokens: int,
        state: State,
    ) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for batch in batches([len(source) for source in sources], batch_tokens):
            try:
                results = translate_ids(
                    self.searched,
                    [sources[i] for i in batch],
                    settings,
                    keys=[keys[i] for i in batch],
                    nbest=nbest,
                    half=self.half,
                )
            except torch.OutOfMemoryError as error:
                raise MacaronError(
                    f"a batch of {len(batch)} sentences needs more memory than the device has: use a smaller beam, "
                    f"or batch_tokens (--batch-tokens) below {batch_tokens}"
                ) from error
            ids = [each.tokens for best in results for each in best]
            decoded = iter(self.tokenizer.decode_lines(ids, state=state))
            for i, best in zip(batch, results, strict=True):
                found[i] = [replace(each, text=next(decoded)) for each in best]
        return found


def load_folder(path: str | Path) -> tuple[TranslationModel, MacaronTokenizer]:
    """The model and the tokenizer of a model folder or of a run's folder, checked to belong together."""
    folder = find_folder(path, TranslationConfig.model_type)
    model, _ = load_model(folder, TranslationModel)
    return model, model_tokenizer(folder, "translation", model.config)


def batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Group sentences of similar length into batches of at most ``batch_tokens``, padding included, longest first."""
    groups: list[list[int]] = []
    room = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if not room:
            room = max(1, batch_tokens // lengths[index])
            groups.append([])
        groups[-1].append(index)
        room -= 1
    return groups


def _list_of_lines(lines: Any) -> list[str]:
    """The lines as a list; other input is refused with an example."""
    if isinstance(lines, str) or not isinstance(lines, Iterable):
        raise MacaronError(f"give a list of lines: translate(['Guten Morgen!']), not {lines!r:.60}")
    found = list(lines)
    for index, line in enumerate(found):
        if not isinstance(line, str):
            raise MacaronError(
                f"give a list of strings: translate(['Guten Morgen!']); item {index} is {line!r:.60} "
                f"({type(line).__name__})"
            )
    return found


def _join(parts: list[list[Hypothesis]], settings: SearchSettings, nbest: int) -> list[Hypothesis]:
    """The translations of a line from those of its parts: the n-th joins the n-th best of each part."""
    if not parts:
        return [Hypothesis("", 0.0)]
    if len(parts) == 1:
        return parts[0][:nbest]
    joined: list[Hypothesis] = []
    for rank in range(min(nbest, max(map(len, parts)))):
        chosen = [best[min(rank, len(best) - 1)] for best in parts]
        tokens = tuple(token for each in chosen for token in each.tokens)
        scores = tuple(score for each in chosen for score in each.token_scores)
        score = sum(scores) / len(tokens) ** settings.length_penalty
        joined.append(Hypothesis(" ".join(each.text for each in chosen), score, tokens, scores))
    return sorted(joined, key=lambda each: -each.score)


def _folder_defaults(model: TranslationModel) -> dict[str, Any]:
    """The search settings in the model's generation_config.json."""
    said: dict[str, Any] = model.generation_config.to_diff_dict()
    longest = said.get("max_length")
    found = {
        "beam": said.get("num_beams") or None,
        "length_penalty": said.get("length_penalty"),
        "max_length": max(1, longest - 2) if longest else None,  # transformers counts the start and the end
    }
    return {name: value for name, value in found.items() if value is not None}
