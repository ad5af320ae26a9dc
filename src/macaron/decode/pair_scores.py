"""Forced scores: the probability that a model gives to translations of others, for filtering and reranking."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from macaron.decode.forced import forced
from macaron.decode.search import batches
from macaron.decode.translator import load_folder
from macaron.device import choose_device, choose_dtype
from macaron.errors import MacaronError, not_finite

#: Tokens of the longer side in a batch, padding included; each target token has a row of logits.
_BATCH_TOKENS = {"cpu": 1024, "cuda": 8192}


@dataclass(frozen=True)
class PairScore:
    """The score of a translation.

    :param log_probability: natural logarithm of its probability, its end included; NaN if the pair is too long
    :param tokens: of the translation, its end included; 0 for an empty pair
    """

    log_probability: float
    tokens: int

    @property
    def per_token(self) -> float:
        """The mean over tokens: the score of ``macaron translate`` with a length penalty of 1."""
        return self.log_probability / max(self.tokens, 1)


class PairScorer:
    """A translation model that scores given pairs.

    >>> PairScorer("runs/mine").score(["Guten Morgen!"], ["Good morning!"])[0].per_token  # doctest: +SKIP
    -0.18

    :param model: a model folder, or the folder of a run
    :param device: ``auto`` (the GPU if there is one), ``cpu``, ``cuda``, ``cuda:1``
    :param dtype: by default that of the saved weights
    """

    def __init__(self, model: str | Path, *, device: str | torch.device = "auto", dtype: str | None = None) -> None:
        where = choose_device(device)
        self.folder = Path(model)
        self.model, self.tokenizer = load_folder(model)
        self.model.to(where, None if dtype is None else choose_dtype(dtype))
        self.batch_tokens = _BATCH_TOKENS.get(where.type, _BATCH_TOKENS["cpu"])
        #: Pairs with more tokens on a side are not scored.
        self.longest = self.model.config.longest_input

    def score(self, sources: Sequence[str], targets: Sequence[str], batch_tokens: int | None = None) -> list[PairScore]:
        """The scores of pairs, in their order. The score of a pair does not depend on the others.

        A pair of two empty lines scores 0. If one side is empty, the other is scored against nothing but an end.

        :param batch_tokens: of the longer side in a batch, padding included
        """
        if len(sources) != len(targets):
            raise MacaronError(f"{len(sources)} sources and {len(targets)} targets: give as many of each")
        pairs = list(
            zip(self.tokenizer.encode_lines(sources), self.tokenizer.encode_lines(targets, "target"), strict=True)
        )
        empty = [not source.strip() and not target.strip() for source, target in zip(sources, targets, strict=True)]
        found = [
            PairScore(0.0 if none else math.nan, 0 if none else len(pair[1]))
            for none, pair in zip(empty, pairs, strict=True)
        ]
        lengths = [max(map(len, pair)) for pair in pairs]
        scored = [i for i, length in enumerate(lengths) if not empty[i] and length <= self.longest]
        for batch in batches([lengths[i] for i in scored], batch_tokens or self.batch_tokens):
            rows = [scored[i] for i in batch]
            try:
                totals = self._totals([pairs[i][0] for i in rows], [pairs[i][1] for i in rows])
            except torch.OutOfMemoryError as error:
                raise MacaronError(
                    f"a batch of {len(rows)} pairs needs more memory than the device has: take batch_tokens "
                    f"(--batch-tokens) below {batch_tokens or self.batch_tokens}"
                ) from error
            if not bool(totals.isfinite().all()):
                raise not_finite(self.folder)
            for i, total in zip(rows, totals.tolist(), strict=True):
                found[i] = PairScore(total, len(pairs[i][1]))
        return found

    @torch.inference_mode()
    def _totals(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Tensor:
        """Log-probabilities of the targets given the sources, (B,), in float32 or better."""
        model = self.model
        target, states = forced(model, sources, targets)
        logits = model.logits(states)
        chosen = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
        chosen = chosen.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return chosen.masked_fill(target == model.pad, 0.0).sum(dim=1)
