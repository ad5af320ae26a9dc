"""The Translator: text in, text out."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args, overload

import torch

from macaron.decode.cpu.linear import activation_levels
from macaron.decode.cpu.model import CpuTranslationModel
from macaron.decode.degenerate import bounded, without_repetition
from macaron.decode.forced import Weights, forced, load_folder, tokens_of
from macaron.decode.gpu import with_kernels, without_collection
from macaron.decode.place_tags import Alignment, Link, word_spans
from macaron.decode.search import batches, translate_ids
from macaron.decode.settings import Hypothesis, Sampling, SearchSettings
from macaron.decode.text_pieces import END, FittedText, LongLines, fit_texts, join_pieces, text_pieces, whole_line
from macaron.device import choose_device, choose_dtype
from macaron.errors import MacaronError, NotFinite, not_finite
from macaron.models.translation import TranslationModel
from macaron.text.load_tokenizer import verify
from macaron.text.pipeline import State
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import tag_ids

#: Source tokens in a batch, padding included.
_BATCH_TOKENS = {"cpu": 1024, "cuda": 65536}


class Translator:
    """A model with its tokenizer.

    >>> Translator("runs/demo/model").translate("Guten Morgen! Wie geht es dir?")  # doctest: +SKIP
    'Good morning! How are you?'

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
        self.folder = None if isinstance(model, TranslationModel) else Path(model)
        usual = model.device if isinstance(model, TranslationModel) else "cpu" if int8 else "auto"
        where = choose_device(usual if device == "auto" else device)
        precision = None if dtype is None else choose_dtype(dtype)
        if int8 and where.type != "cpu":
            raise MacaronError(f"int8 is for the CPU, not for {where}: leave --int8 out, or choose --device cpu")
        if int8 and precision not in (None, torch.float32):
            raise MacaronError(f"int8 goes with float32, not with {dtype}: leave out --int8 or --dtype")
        precision = torch.float32 if int8 else precision
        if isinstance(model, TranslationModel):
            if tokenizer is None:
                raise MacaronError("a model in memory needs its tokenizer: Translator(model, tokenizer)")
            network = model
            verify(tokenizer, network.config)
        else:
            network, tokenizer = load_folder(model, where)
        # On a GPU less precision is for the decoder's matrix products only: as fast, and nearer to float32.
        saved = network.embedding.tokens.weight.dtype
        products_only = where.type == "cuda" and precision in (torch.bfloat16, torch.float16) and saved == torch.float32
        self.half = precision if products_only else None
        self.model: TranslationModel = network.to(where, None if products_only else precision)
        fast = int8 or (self.folder and where.type == "cpu" and (precision or saved) == torch.float32)
        self.searched = CpuTranslationModel(self.model, int8) if fast else with_kernels(self.model, self.half)
        self.tokenizer, self.tag, self.int8 = tokenizer, tag, int8
        self._front = tag_ids(tokenizer, tag)
        self.settings = _folder_settings(network)
        self.batch_tokens = _BATCH_TOKENS.get(where.type, _BATCH_TOKENS["cpu"])

    @overload
    def translate(self, text: str, *, one_per_line: bool = False, **options: Any) -> str: ...

    @overload
    def translate(self, text: Iterable[str], *, one_per_line: bool = False, **options: Any) -> list[str]: ...

    def translate(self, text: str | Iterable[str], *, one_per_line: bool = False, **options: Any) -> str | list[str]:
        """The best translation of a text, or of each text of a list; the options are those of `translate_nbest`.

        Texts are split into sentences; line breaks, tabs, list marks and the space between sentences are kept.

        :param one_per_line: each text is one sentence, or is to be translated as one
        """
        if options.pop("nbest", 1) not in (1, None):
            raise MacaronError("translate gives one translation: use translate_nbest(lines, nbest=...) for several")
        texts = [text] if isinstance(text, str) else text
        found = self.translate_nbest(texts, nbest=1, one_per_line=one_per_line, **options)
        return found[0][0].text if isinstance(text, str) else [best[0].text for best in found]

    def translate_nbest(
        self,
        lines: Iterable[str],
        *,
        nbest: int | None = None,
        one_per_line: bool = True,
        beam: int | None = None,
        length_penalty: float | None = None,
        max_length: int | None = None,
        sampling: Sampling | None = None,
        batch_tokens: int | None = None,
        long_lines: LongLines = "split",
        max_source_length: int | None = None,
        first_line: int = 1,
        state: State = "raw",
        tags: Sequence[str | None] | None = None,
        bound: bool | None = None,
        found: Callable[[int, list[Hypothesis]], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best translations of each line with their scores, best first.

        An empty line has one translation, which is empty. Defaults of beam, length penalty and longest translation are
        those of the model folder (``generation_config.json``), otherwise 5, 1.0 and 200 tokens.

        :param nbest: translations of a line; by default the beam
        :param one_per_line: a line is one sentence. Otherwise lines are split (`macaron.decode.text_pieces`),
            degenerate translations are cut (`macaron.decode.degenerate`), and a line has one translation: the score
            is that of all its tokens
        :param sampling: draw ``nbest`` samples instead of searching
        :param batch_tokens: source tokens in a batch, padding included
        :param long_lines: for sentences of more than ``max_source_length`` tokens: ``split`` translates their parts
            and joins the translations, ``truncate`` cuts, ``refuse`` is an error (`LineRefused`)
        :param max_source_length: in tokens; by default 200, or ``max_length`` if that is more
        :param first_line: number of the first line, for messages and for the random numbers of a line
        :param state: ``moses`` if the lines are Moses tokens; the translations are then, too
        :param tags: the tag of each line; by default the translator's own
        :param bound: cut degenerate translations; by default where lines are split
        :param found: called with the index and the translations of a line as soon as they are there
        """
        lines = _list_of_lines(lines)
        if not one_per_line:
            if nbest not in (1, None):
                raise MacaronError(f"nbest = {nbest} is for whole lines: give one_per_line=True as well")
            nbest = 1
        if sampling is not None:
            beam = nbest or beam or 1
        elif nbest is not None and beam is None:
            beam = max(self.settings.beam, nbest)
        given = {"beam": beam, "length_penalty": length_penalty, "max_length": max_length, "sampling": sampling}
        changes: Any = {k: v for k, v in given.items() if v is not None and v != getattr(self.settings, k)}
        settings = replace(self.settings, **changes) if changes else self.settings
        nbest = settings.beam if nbest is None else nbest
        if not 1 <= nbest <= settings.beam:
            raise MacaronError(f"nbest must be between 1 and the beam ({settings.beam}), not {nbest}: widen the beam")
        if long_lines not in get_args(LongLines):
            raise MacaronError(f"long_lines must be one of {', '.join(get_args(LongLines))}, not {long_lines!r}")
        # The end of a source that is longer than the longest translation would be lost.
        usual = max(settings.max_length, SearchSettings.max_length)
        longest = max_source_length or min(usual, self.model.config.max_position_embeddings - END)
        fronts = [self._front] * len(lines) if tags is None else [tag_ids(self.tokenizer, tag) for tag in tags]
        longest -= max(map(len, fronts), default=0)
        lang = self.tokenizer.source_lang or "en"
        texts = [whole_line(line) if one_per_line else text_pieces(line, lang, state) for line in lines]
        if not one_per_line if bound is None else bound:
            settings = bounded(settings)
        encode, size = partial(self.tokenizer.encode_lines, state=state), batch_tokens or self.batch_tokens
        with without_collection() if self.model.device.type == "cuda" else nullcontext():
            fitted = fit_texts(texts, encode, longest, long_lines, first_line)
            return self._translate(fitted, fronts, first_line, settings, nbest, size, state, found)

    @property
    def precision(self) -> str:
        """That of matrix products; chosen once, it does not depend on the batch."""
        if self.int8:
            return f"int8, activations with {activation_levels().bit_length() + 1} bits"
        return str(self.half or self.searched.embedding.tokens.weight.dtype).removeprefix("torch.")

    @torch.inference_mode()
    def align(self, sources: Sequence[str], translations: Sequence[str]) -> list[Alignment | None]:
        """Which words of its source each translation renders; None for a pair that is longer than the model allows.

        Attention is averaged over all heads and layers, which is better than any one of them, and summed over the
        tokens of a word. A word of the translation is linked to the word of the source to which it gives the largest
        share of what that word gets from all: names and rare words get more attention than others from everywhere.
        """
        sides = [self.tokenizer.token_spans(sources), self.tokenizer.token_spans(translations, "target")]
        front = self._front
        ids = [([*front, *a[0]], b[0]) for a, b in zip(*sides, strict=True)]
        found: list[Alignment | None] = [None] * len(ids)
        lengths = [max(map(len, pair)) for pair in ids]
        short = [i for i, length in enumerate(lengths) if length <= self.model.config.longest_input]
        limit = min(self.batch_tokens, 8192)  # each pair of tokens has weights in every layer
        for batch in batches([lengths[i] for i in short], limit):
            rows = [short[i] for i in batch]
            weights: Weights = []
            forced(self.model, [ids[i][0] for i in rows], [ids[i][1] for i in rows], weights)
            mean = torch.stack([each.float().mean(dim=1) for name, each in weights if name == "H"]).mean(dim=0).cpu()
            for row, i in enumerate(rows):
                words = word_spans(sources[i]), word_spans(translations[i])
                source, target = (
                    tokens_of(*each) for each in zip(words, (sides[0][i][1], sides[1][i][1]), strict=True)
                )
                attention = mean[row, : target.shape[1], len(front) : len(front) + source.shape[1]]
                shares = target @ attention @ source.T
                if shares.numel():
                    best = (shares / shares.sum(dim=0).clamp(min=1e-9)).argmax(dim=1).tolist()
                    found[i] = tuple(Link(words[0][k], span) for k, span in zip(best, words[1], strict=True))
        return found

    def _translate(
        self,
        texts: Sequence[FittedText],
        fronts: Sequence[Sequence[int]],
        first_line: int,
        settings: SearchSettings,
        nbest: int,
        batch_tokens: int,
        state: State,
        found: Callable[[int, list[Hypothesis]], None] | None,
    ) -> list[list[Hypothesis]]:
        # The sentences of all texts are translated together.
        places = [(line, part) for line, text in enumerate(texts) for part in range(len(text.sources))]
        sources = [[*fronts[line], *texts[line].sources[part]] for line, part in places]
        lists: list[list[list[Hypothesis]]] = [[[] for _ in text.sources] for text in texts]
        joined: list[list[Hypothesis]] = [[] for _ in texts]

        def join(line: int) -> None:
            if all(lists[line]):
                lang = self.tokenizer.target_lang or ""
                joined[line] = join_pieces(texts[line], lists[line], settings.length_penalty, lang, self.align)
                if found is not None:
                    found(line, joined[line])

        for line in (line for line, text in enumerate(texts) if not text.sources):
            join(line)

        def texts_of(indices: Sequence[int], results: Callable[[], list[list[Hypothesis]]]) -> list[list[Hypothesis]]:
            found = results()
            if settings.longest is not None:
                found = [
                    [without_repetition(each, sources[i], settings) for each in best]
                    for i, best in zip(indices, found, strict=True)
                ]
            decoded = iter(self.tokenizer.decode_lines([each.tokens for best in found for each in best], state=state))
            return [[replace(each, text=next(decoded)) for each in best] for best in found]

        # Texts that another thread makes; the copies that it reads are kept, since it must not free their memory.
        waiting: deque[tuple[list[int], Future[list[list[Hypothesis]]], object]] = deque()

        def take(indices: Sequence[int], found: list[list[Hypothesis]]) -> None:
            for (line, part), best in zip((places[i] for i in indices), found, strict=True):
                lists[line][part] = best
                join(line)

        def take_waiting(wait: bool = False) -> None:
            while waiting and (wait or waiting[0][1].done()):
                take(waiting[0][0], waiting[0][1].result())
                waiting.popleft()

        on_gpu = self.model.device.type == "cuda"
        searched = self.model if on_gpu and settings.sampling is not None else self.searched
        try:
            with ThreadPoolExecutor(1) if on_gpu else nullcontext() as thread:
                for batch in batches([len(source) for source in sources], batch_tokens, settings.beam):

                    def finished(rows: Sequence[int], results: Any, batch: list[int] = batch) -> None:
                        indices = [batch[row] for row in rows]
                        if thread is None:
                            take(indices, texts_of(indices, results))
                        else:
                            waiting.append((indices, thread.submit(texts_of, indices, results), results))
                            take_waiting()

                    keys = [(first_line + line, part) for line, part in (places[i] for i in batch)]
                    options: Any = {"keys": keys, "nbest": nbest, "half": self.half, "finished": finished}
                    translate_ids(searched, [sources[i] for i in batch], settings, **options)
                take_waiting(wait=True)
        except NotFinite:
            raise not_finite(self.folder) from None
        except torch.OutOfMemoryError as error:
            most = f"a smaller beam, or batch_tokens (--batch-tokens) below {batch_tokens}"
            raise MacaronError(f"a batch of {len(batch)} sentences needs too much memory: take {most}") from error
        return joined


def _list_of_lines(lines: Any) -> list[str]:
    if isinstance(lines, str) or not isinstance(lines, Iterable):
        raise MacaronError(f"give a list of lines: ['Guten Morgen!'], not {lines!r:.60}")
    found = list(lines)
    for index, line in enumerate(found):
        if not isinstance(line, str):
            raise MacaronError(f"give a list of strings: ['Guten Morgen!']; item {index} is {line!r:.60}")
    return found


def _folder_settings(model: TranslationModel) -> SearchSettings:
    said: dict[str, Any] = model.generation_config.to_diff_dict()
    longest = said.get("max_length")
    found: dict[str, Any] = {
        "beam": said.get("num_beams") or None,
        "length_penalty": said.get("length_penalty"),
        "max_length": max(1, longest - 2) if longest else None,  # transformers counts the start and the end
    }
    return SearchSettings(**{name: value for name, value in found.items() if value is not None})
