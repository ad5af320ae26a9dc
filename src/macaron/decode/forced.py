"""Given translations: one pass over source and translation tells their probability and the alignment of their words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from macaron.decode.place_tags import Span
from macaron.decode.search import batches
from macaron.device import choose_device, choose_dtype
from macaron.errors import MacaronError, not_finite
from macaron.models.load import find_folder, load_model
from macaron.models.translation import TranslationModel
from macaron.text.load_tokenizer import model_tokenizer
from macaron.text.tokenizer import MacaronTokenizer

Weights = list[tuple[str, Tensor]]
#: Tokens of the longer side in a batch, padding included; each target token has a row of logits.
_BATCH_TOKENS = {"cpu": 1024, "cuda": 8192}


def load_folder(
    path: str | Path, device: str | torch.device = "cpu", dtype: Any = None, network: Any = TranslationModel
) -> tuple[Any, MacaronTokenizer]:
    """The model and the tokenizer of a model folder or of a run's folder, checked to belong together."""
    kind, precision = network.config_class.kind, None if dtype is None else choose_dtype(dtype)
    folder = find_folder(path, kind)
    model, _ = load_model(folder, network, precision, device=choose_device(device))
    return model, model_tokenizer(folder, kind, model.config)


def forced(
    model: TranslationModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    weights: Weights | None = None,
) -> tuple[Tensor, Tensor]:
    """The target tokens (B, T), padded on the right, and the states (B, T, D) that predict them.

    :param sources: token ids, each with its end, as are the targets
    :param weights: if a list, receives the weights of every attention of the decoder
    """
    source, target = (
        pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=model.pad).to(model.device)
        for rows in (sources, targets)
    )
    start = model.config.decoder_start_token_id
    first = torch.full_like(target[:, :1], targets[0][-1] if start is None else start)
    real = source != model.pad
    shifted = torch.cat([first, target[:, :-1]], dim=1)
    return target, model.decode(shifted, model.encode(source, real), real, weights=weights)


def tokens_of(words: Sequence[Span], tokens: Sequence[Span]) -> Tensor:
    """Which tokens a word has: 1 where characters of both overlap, (words, tokens)."""
    ours, theirs = (torch.tensor(spans).view(-1, 2) for spans in (words, tokens))
    return ((ours[:, :1] < theirs[:, 1]) & (ours[:, 1:] > theirs[:, 0])).float()


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

    The parameters are those of `Translator`.
    """

    def __init__(self, model: str | Path, *, device: str | torch.device = "auto", dtype: str | None = None) -> None:
        self.folder = Path(model)
        self.model, self.tokenizer = load_folder(model, device, dtype)
        self.batch_tokens = _BATCH_TOKENS.get(self.model.device.type, _BATCH_TOKENS["cpu"])
        #: Pairs with more tokens on a side are not scored.
        self.longest = self.model.config.longest_input

    @torch.inference_mode()
    def score(self, sources: Sequence[str], targets: Sequence[str], batch_tokens: int | None = None) -> list[PairScore]:
        """The scores of pairs, in their order. The score of a pair does not depend on the others.

        A pair of two empty lines scores 0. If one side is empty, the other is scored against nothing but an end.

        :param batch_tokens: of the longer side in a batch, padding included
        """
        if len(sources) != len(targets):
            raise MacaronError(f"{len(sources)} sources and {len(targets)} targets: give as many of each")
        sides = self.tokenizer.encode_lines(sources), self.tokenizer.encode_lines(targets, "target")
        lengths = [max(map(len, pair)) for pair in zip(*sides, strict=True)]
        empty = [not "".join(texts).strip() for texts in zip(sources, targets, strict=True)]
        found = [PairScore(0.0, 0) if e else PairScore(math.nan, len(t)) for e, t in zip(empty, sides[1], strict=True)]
        scored = [i for i, length in enumerate(lengths) if length <= self.longest and not empty[i]]
        model, most = self.model, batch_tokens or self.batch_tokens
        for batch in batches([lengths[i] for i in scored], most):
            rows = [scored[i] for i in batch]
            try:
                target, states = forced(model, [sides[0][i] for i in rows], [sides[1][i] for i in rows])
                logits = model.logits(states)
                chosen = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
                chosen = chosen.gather(-1, target.unsqueeze(-1)).squeeze(-1)
                totals = chosen.masked_fill(target == model.pad, 0.0).sum(dim=1)
            except torch.OutOfMemoryError as error:
                raise MacaronError(
                    f"a batch of {len(rows)} pairs needs too much memory: take --batch-tokens below {most}"
                ) from error
            if not bool(totals.isfinite().all()):
                raise not_finite(self.folder)
            for i, total in zip(rows, totals.tolist(), strict=True):
                found[i] = PairScore(total, found[i].tokens)
        return found
