"""Beam search and sampling over token ids."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from macaron.decode.beam import Beams, Chains
from macaron.decode.cache import BeamCache
from macaron.decode.cpu.linear import threads_for_products
from macaron.decode.cpu.model import FEW, CpuTranslationModel
from macaron.decode.gpu import BeamStep, Logits, RecordedSteps, decoder_kernels, encoder_precision
from macaron.decode.settings import Hypothesis, SearchSettings
from macaron.device import to_host
from macaron.errors import MacaronError
from macaron.models.translation import DecoderNetwork, TranslationModel
from macaron.nn.attention import Context
from macaron.nn.embedding import FIRST_POSITION

#: Is told the indices of finished sentences, and a function that gives their hypotheses, in any thread.
Finished = Callable[[Sequence[int], Callable[[], list[list[Hypothesis]]]], None]
#: Steps between checks for finished sentences, and whether a check is answered at the next one: the GPU never waits.
#: The fraction of the batch that finished sentences must reach to be removed: removal copies the rest and, on a GPU,
#: requires a new recording. A batch of no more sentences than this is not made smaller: a step would not be faster.
_CHECKS = {"cpu": (1, False, 0.0, 0), "cuda": (4, True, 0.4, 128)}
#: With more beams a batch is smaller: the memory of a sentence grows with their square (see `macaron.decode.cache`).
_MANY_BEAMS = 32


def translate_ids(
    model: TranslationModel,
    sources: Sequence[Sequence[int]],
    settings: SearchSettings | None = None,
    *,
    keys: Sequence[Sequence[int]] | None = None,
    nbest: int | None = None,
    half: torch.dtype | None = None,
    finished: Finished | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch of sentences, given and returned as token ids (`Hypothesis.text` is empty).

    The result for a sentence does not depend on the others in the batch.

    :param sources: token ids of each sentence, with its end
    :param settings: by default those of the authors' code
    :param keys: numbers that identify each sentence, for sampling; by default its index in the batch
    :param nbest: hypotheses wanted for each sentence; by default as many as beams
    :param half: on a GPU, precision of the decoder's matrix products if less than the model's
    :param finished: called during the search; nothing is returned then
    :returns: for each sentence its hypotheses, best first; fewer than ``nbest`` where there are no more
    """
    settings = settings or SearchSettings()
    if not sources:
        return []
    _check(model, sources)
    keys = keys or [(number,) for number in range(len(sources))]
    found: list[list[Hypothesis]] = [[] for _ in sources]

    def keep(numbers: Sequence[int], results: Callable[[], list[list[Hypothesis]]]) -> None:
        for number, best in zip(numbers, results(), strict=True):
            found[number] = best

    # For few sentences only products are worth all threads.
    few = isinstance(model, CpuTranslationModel) and len(sources) < FEW
    was_training = model.training
    if was_training:
        model.eval()
    try:
        with torch.inference_mode(), threads_for_products() if few else nullcontext():
            _search(model, sources, settings, keys, nbest or settings.beam, half, finished or keep)
            return found if finished is None else []
    finally:
        if was_training:
            model.train()


def limit(settings: SearchSettings, source_length: int) -> int:
    """The longest translation, its end not counted, of a source of this many tokens, its end counted."""
    found = settings.max_length + int(settings.max_ratio * source_length)
    return found if settings.longest is None else min(found, settings.longest)


def _search(
    model: TranslationModel,
    sources: Sequence[Sequence[int]],
    settings: SearchSettings,
    keys: Sequence[Sequence[int]],
    nbest: int,
    half: torch.dtype | None,
    finished: Finished,
) -> None:
    end, start = end_token(model), model.config.decoder_start_token_id
    device = model.embedding.tokens.weight.device
    # On the host too, to avoid synchronisation. Sources are counted with their end.
    limits = [limit(settings, len(source)) for source in sources]
    # Random numbers of samples are made on the host: such steps cannot be recorded.
    recorded = device.type == "cuda" and settings.sampling is None
    scorer = Scorer(model, sources, settings.beam, recorded, half if recorded else None)
    common = (settings, torch.tensor(limits, device=device), model.pad, end)
    drawn = settings.sampling
    state = Beams(*common, scorer.score_dtype) if drawn is None else Chains(*common, drawn, keys)

    def take_step(tokens: Tensor, number: int, at_limit: bool) -> tuple[Tensor, Tensor]:
        scores = scorer.step(tokens)
        tokens, parents = state.advance(scores, number, at_limit, *scorer.summary)
        scorer.cache.end_step(parents)
        return tokens, parents

    advance: BeamStep = take_step
    if scorer.cache.fixed and isinstance(state, Beams):
        advance = RecordedSteps(take_step, state, scorer.cache)
    tokens = torch.full((len(sources), settings.beam), end if start is None else start, device=device)
    ends = set(limits)
    numbers = list(range(len(sources)))  # of the sentences that are still in the batch
    patience, later, leave, small = _CHECKS.get(device.type, _CHECKS["cpu"])
    told, last = set[int](), max(limits)
    asked: Callable[[], list[Tensor]] | None = None  # which sentences are closed

    for step in range(last + 1):
        at_limit = step in ends
        scorer.cache.reserve(step)
        tokens, parents = advance(tokens, step, at_limit)
        state.remember(tokens, parents)
        if step < last and (step + 1) % patience:
            continue
        if step == last or not later:
            closed, asked = state.closed.tolist(), None
        else:
            closed, asked = [] if asked is None else asked()[0].tolist(), to_host([state.closed])
        gone = [row for row, done in enumerate(closed) if done and numbers[row] not in told]
        if not gone or (not all(closed) and len(gone) < leave * len(closed)):
            continue
        left = [numbers[row] for row in gone]
        finished(left, state.collect(torch.tensor(gone).to(device, non_blocking=True), nbest))
        told.update(left)
        if all(closed):
            break
        if len(closed) <= small:
            continue
        stay = [row for row, done in enumerate(closed) if not done]
        rows, asked = torch.tensor(stay).to(device, non_blocking=True), None
        state.select(rows)
        scorer.select(rows)
        tokens, numbers = tokens[rows], [numbers[row] for row in stay]
        ends = {limits[number] for number in numbers}


class Scorer:
    """The model with the sources encoded and the past in its cache: one step of the decoder for all beams of a batch.

    :param sources: token ids of the sentences, each with its end
    :param fixed: see `BeamCache`
    :param half: precision of the decoder's matrix products, if less than the model's. Logits keep their precision,
        because rounded logits would change the ranking.
    """

    def __init__(
        self,
        model: TranslationModel,
        sources: Sequence[Sequence[int]],
        beam: int,
        fixed: bool = False,
        half: torch.dtype | None = None,
    ) -> None:
        self.model, self.half = model, half
        device = model.embedding.tokens.weight.device
        lengths = torch.tensor([len(source) for source in sources])
        ids = torch.full((len(sources), int(lengths.max())), model.pad)
        inside = torch.arange(ids.shape[1]) < lengths[:, None]
        ids[inside] = torch.tensor([token for source in sources for token in source])
        real = inside.to(device, non_blocking=True)
        with nullcontext() if half is None else encoder_precision():
            memory = model.encode(ids.to(device, non_blocking=True), real)
        # (B, 1, 1, S), added to the logits: a boolean mask would be converted in every layer of every step.
        hidden = torch.zeros(real.shape, dtype=half or memory.dtype, device=device).masked_fill_(~real, -torch.inf)
        self.memory_mask = hidden[:, None, None, :]
        # Only the first step projects this; afterwards the cache has its keys and values.
        self.memory: Tensor | None = memory
        self.score_dtype = torch.promote_types(memory.dtype, torch.float32)
        embedding = model.embedding
        self.logits = model.logits if half is None else Logits(embedding.tokens.weight, embedding.output_bias)
        #: Of a model with kernels of its own (`GpuTranslationModel`): it needs no context, and gives logits.
        self.summarise: Callable[[Tensor, int], tuple[Tensor, Tensor]] | None = getattr(model, "summarise", None)
        self.cache = BeamCache(len(sources), beam, half or memory.dtype, memory.device, fixed)
        #: Of what the last step returned, if that was logits.
        self.summary: tuple[Tensor, ...] = ()

    def step(self, tokens: Tensor) -> Tensor:
        """The last tokens of all beams, (B, N), to log-probabilities (B, N, V) of the next, in float32 or better.

        In the first step all beams of a sentence are one, and the log-probabilities are (B, 1, V).
        """
        model, cache = self.model, self.cache
        if self.memory is not None:
            tokens = tokens[:, :1]
        cache.begin_step(tokens.shape[1])
        context = Context(
            mask=cache.mask,
            memory=self.memory,
            memory_mask=self.memory_mask,
            cache=cache,
            positions=cache.steps + FIRST_POSITION,
        )
        x = model.embedding(tokens, context.positions)
        with decoder_kernels(tokens.device, self.half) if cache.fixed and self.summarise is None else nullcontext():
            states = model.decoder(x, context)
        self.memory = None
        if self.summarise is not None:
            logits = self.logits(states)
            self.summary = self.summarise(logits, model.pad)
            return logits
        return self.logits(states).log_softmax(dim=-1, dtype=self.score_dtype)

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order."""
        self.cache.select(rows)
        self.memory_mask = self.memory_mask.index_select(0, rows)


def end_token(model: DecoderNetwork) -> int:
    """The token that ends a text."""
    end = model.config.eos_token_id
    if isinstance(end, list | tuple) and len(end) == 1:
        end = end[0]
    if not isinstance(end, int):
        raise MacaronError(f"eos_token_id in config.json must be one token, not {end!r}")
    return end


def _check(model: TranslationModel, sources: Sequence[Sequence[int]]) -> None:
    for number, source in enumerate(sources):
        if not len(source):
            raise MacaronError(f"source {number} has no tokens; an empty sentence has at least its end")
        if min(source) < 0 or max(source) >= model.config.vocab_size:
            raise MacaronError(
                f"source {number} has token {max(source)}, beyond the vocabulary: take the model's own tokenizer"
            )


def batches(lengths: Sequence[int], batch_tokens: int, beam: int = 1) -> list[list[int]]:
    """Group sentences of similar length into batches of at most ``batch_tokens``, padding included, longest first."""
    most = int(batch_tokens * min(1, _MANY_BEAMS / beam) ** 2)
    groups: list[list[int]] = []
    room = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if not room:
            room = max(1, most // lengths[index])
            groups.append([])
        groups[-1].append(index)
        room -= 1
    return groups
