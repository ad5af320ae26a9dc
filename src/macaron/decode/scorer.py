"""One step of the decoder for all beams of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from macaron.decode.cache import BeamCache
from macaron.errors import MacaronError
from macaron.models.translation import TranslationModel
from macaron.nn import Context
from macaron.nn.embedding import FIRST_POSITION
from macaron.text.vocabulary import UNK


@dataclass(frozen=True)
class SpecialTokens:
    """The ids that a search treats differently."""

    pad: int
    start: int
    end: int
    unknown: int

    @classmethod
    def of(cls, model: TranslationModel) -> "SpecialTokens":
        """Those of a model."""
        end = model.config.eos_token_id
        if isinstance(end, list | tuple) and len(end) == 1:
            end = end[0]
        if not isinstance(end, int):
            raise MacaronError(f"eos_token_id in config.json must be one token, not {end!r}")
        start = model.config.decoder_start_token_id
        return cls(model.pad, end if start is None else start, end, UNK)


def encode_sources(
    model: TranslationModel, sources: Sequence[Sequence[int]], dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """The encoder's output (B, S, D) for token ids, and the mask of its padding, (B, 1, 1, S).

    The mask is added to the logits: a boolean one would be turned into this in every layer of every step.

    :param dtype: of the mask; by default as the output's
    """
    device = model.embedding.tokens.weight.device
    lengths = torch.tensor([len(source) for source in sources])
    ids = torch.full((len(sources), int(lengths.max())), model.pad)
    inside = torch.arange(ids.shape[1]) < lengths[:, None]
    ids[inside] = torch.tensor([token for source in sources for token in source])
    real = inside.to(device, non_blocking=True)
    memory = model.encode(ids.to(device, non_blocking=True), real)
    hidden = torch.zeros(real.shape, dtype=dtype or memory.dtype, device=device).masked_fill_(~real, -torch.inf)
    return memory, hidden[:, None, None, :]


class Scorer:
    """The model with the sources encoded and the past in its cache.

    :param sources: token ids of the sentences, each with its end
    """

    def __init__(self, model: TranslationModel, sources: Sequence[Sequence[int]], beam: int) -> None:
        self.model = model
        memory, self.memory_mask = encode_sources(model, sources)
        # Only the first step projects this; afterwards the cache has its keys and values.
        self.memory: Tensor | None = memory
        self.score_dtype = torch.promote_types(memory.dtype, torch.float32)
        self.cache = BeamCache(len(sources), beam, memory.dtype, memory.device)

    def step(self, tokens: Tensor) -> Tensor:
        """The last tokens of all beams, (B, N), to log-probabilities (B, N, V) of the next, in float32 or better.

        In the first step all beams of a sentence are one, and the log-probabilities are (B, 1, V).
        """
        model, cache = self.model, self.cache
        tokens = tokens if cache.length else tokens[:, :1]
        position = torch.full((1,), FIRST_POSITION + cache.length, device=tokens.device)
        cache.begin_step(tokens.shape[1])
        context = Context(
            mask=cache.mask,
            memory=self.memory,
            memory_mask=self.memory_mask,
            cache=cache,
            kernel=model.kernel,
        )
        states = model.decoder(model.embedding(tokens, position), context)
        cache.end_step()
        self.memory = None
        return model.logits(states).log_softmax(dim=-1, dtype=self.score_dtype)

    def reorder(self, parents: Tensor) -> None:
        """Beam n of a sentence goes on from beam ``parents[:, n]``: (B, N)."""
        self.cache.reorder(parents)

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order."""
        self.cache.select(rows)
        self.memory_mask = self.memory_mask.index_select(0, rows)
