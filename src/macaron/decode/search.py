"""Beam search and sampling over token ids."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from macaron.decode.beam import Beams
from macaron.decode.captured import CapturedSteps
from macaron.decode.fixed import FixedScorer
from macaron.decode.packed import searching
from macaron.decode.sampling import Chains
from macaron.decode.scorer import Scorer, SpecialTokens
from macaron.decode.settings import Hypothesis, SearchSettings
from macaron.errors import MacaronError
from macaron.models.translation import TranslationModel

#: Steps between two questions to the device whether sentences are complete. A GPU has to stop for an answer.
_PATIENCE = {"cpu": 1, "cuda": 8}
#: Complete sentences leave the batch when they are this part of it: leaving copies what stays, and on a GPU the step
#: has to be recorded again.
_LEAVE = {"cpu": 0.0, "cuda": 0.4}


class State(Protocol):
    """What is known of a batch's translations; sentences are rows, which `select` renumbers."""

    @property
    def closed(self) -> Tensor:
        """(B,), true for sentences that need no further step."""

    def advance(self, scores: Tensor, step: int, at_limit: bool) -> tuple[Tensor, Tensor]:
        """Take a step by log-probabilities (B, N, V): the next tokens, and the hypotheses that they continue."""

    def select(self, rows: Tensor) -> None:
        """Keep these sentences."""

    def results(self, rows: Tensor, count: int) -> list[list[Hypothesis]]:
        """The best that have been found for these sentences, at most so many for each."""


def translate_ids(
    model: TranslationModel,
    sources: Sequence[Sequence[int]],
    settings: SearchSettings | None = None,
    *,
    keys: Sequence[Sequence[int]] | None = None,
    nbest: int | None = None,
    half: torch.dtype | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch of sentences, given and returned as token ids (`Hypothesis.text` is empty).

    The result for a sentence does not depend on the others in the batch.

    :param sources: token ids of each sentence, with its end
    :param settings: by default those of the authors' code
    :param keys: numbers that identify each sentence, for sampling; by default its place in the batch
    :param nbest: hypotheses wanted for each sentence; by default as many as beams
    :param half: on a GPU, precision of the decoder's matrix products if less than the model's
    :returns: for each sentence its hypotheses, best first; ``nbest`` of them unless there are not so many
    """
    settings = settings or SearchSettings()
    if not sources:
        return []
    _check(model, sources)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), searching(model, len(sources)):
            keys = keys or [(number,) for number in range(len(sources))]
            return _search(model, sources, settings, keys, nbest or settings.beam, half)
    finally:
        model.train(was_training)


def _search(
    model: TranslationModel,
    sources: Sequence[Sequence[int]],
    settings: SearchSettings,
    keys: Sequence[Sequence[int]],
    nbest: int,
    half: torch.dtype | None,
) -> list[list[Hypothesis]]:
    special = SpecialTokens.of(model)
    device = model.embedding.tokens.weight.device
    # Kept here as well as on the device: no step has to ask for them.
    limits = [settings.limit(len(source)) for source in sources]
    scorer: Scorer | FixedScorer
    # Numbers for samples are made on the host: such steps cannot be recorded.
    if device.type == "cuda" and settings.sampling is None:
        scorer = FixedScorer(model, sources, settings.beam, half)
    else:
        scorer = Scorer(model, sources, settings.beam)
    state = _state(settings, special, torch.tensor(limits, device=device), keys, scorer.score_dtype)
    steps = _steps(scorer, state)
    tokens = torch.full((len(sources), settings.beam), special.start, device=device)
    numbers = list(range(len(sources)))  # of the sentences that are still in the batch
    found: list[list[Hypothesis]] = [[] for _ in sources]
    patience, leave = _PATIENCE.get(device.type, 1), _LEAVE.get(device.type, 0.0)

    for step in range(max(limits) + 1):
        at_limit = any(limits[number] == step for number in numbers)
        tokens = steps(tokens, step, at_limit)
        if step < max(limits) and (step + 1) % patience:
            continue
        closed = state.closed.tolist()
        if sum(closed) == 0 or (not all(closed) and sum(closed) < leave * len(closed)):
            continue
        gone, stay = ([row for row, done in enumerate(closed) if done == which] for which in (True, False))
        for row, best in zip(gone, state.results(torch.tensor(gone, device=device), nbest), strict=True):
            found[numbers[row]] = best
        if not stay:
            break
        rows = torch.tensor(stay, device=device)
        state.select(rows)
        scorer.select(rows)
        tokens, numbers = tokens[rows], [numbers[row] for row in stay]
    return found


def _steps(scorer: Scorer | FixedScorer, state: State) -> Callable[[Tensor, int, bool], Tensor]:
    """What leads from the last tokens, (B, N), to the next ones."""
    if isinstance(scorer, FixedScorer) and isinstance(state, Beams):
        return CapturedSteps(scorer, state)

    def step(tokens: Tensor, number: int, at_limit: bool) -> Tensor:
        tokens, parents = state.advance(scorer.step(tokens), number, at_limit)
        scorer.reorder(parents)
        return tokens

    return step


def _state(
    settings: SearchSettings,
    special: SpecialTokens,
    limits: Tensor,
    keys: Sequence[Sequence[int]],
    dtype: torch.dtype,
) -> State:
    if settings.sampling is not None:
        return Chains(settings, settings.sampling, special, limits, keys)
    return Beams(settings, special, limits, dtype)


def _check(model: TranslationModel, sources: Sequence[Sequence[int]]) -> None:
    for number, source in enumerate(sources):
        if not len(source):
            raise MacaronError(f"source {number} has no tokens; an empty sentence has at least its end")
        if min(source) < 0 or max(source) >= model.config.vocab_size:
            raise MacaronError(
                f"source {number} has token {max(source)}, and the model knows {model.config.vocab_size}: "
                "use the tokenizer that belongs to the model"
            )
