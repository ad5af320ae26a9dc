"""What all networks share: a configuration, parts that are made from it, an encoder, saving and loading, masks."""

from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from macaron.models.configuration import ModelConfig
from macaron.models.load import load_model, write_model
from macaron.nn.attention import Context
from macaron.nn.embedding import Embedding, token_positions
from macaron.nn.stack import Stack


class Network(nn.Module):
    """Base of all networks: plain PyTorch. Every leaf draws its own weights when it is made.

    `macaron.huggingface` makes transformers' classes of them, with the same names of weights.
    """

    config_class: ClassVar[Any]
    config: Any
    embedding: Embedding
    encoder: Stack

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.build(config)
        # Building has drawn the weights already; the second draw, but of nested networks, gives a seed the same ones as
        # in earlier versions, where transformers made it.
        inside = {leaf for part in self.children() if isinstance(part, Network) for leaf in part.modules()}
        for leaf in self.modules() if self.device.type != "meta" else ():
            if leaf not in inside and hasattr(leaf, "reset_parameters"):
                leaf.reset_parameters()  # type: ignore[operator]

    def build(self, config: Any) -> None:
        """Make the parts of the network."""
        raise NotImplementedError

    def encode(
        self,
        ids: Tensor | None,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        *,
        vectors: Tensor | None = None,
        states: list[Tensor] | None = None,
        weights: list[tuple[str, Tensor]] | None = None,
    ) -> Tensor:
        """Tokens (B, S) to the encoder's output (B, S, D).

        :param real: (B, S), which positions are tokens; None means all
        :param segments: (B, S), of encoders; by default all tokens belong to the first
        :param vectors: (B, S, D), token vectors instead of ids
        :param states: if a list, receives the state before each layer
        :param weights: if a list, receives the weights of every attention
        """
        positions = None if real is None else token_positions(real)
        context = Context(mask=key_mask(real), weights=weights, positions=positions)
        return self.encoder(self.embedding(ids, positions, segments, vectors), context, states)

    @property
    def pad(self) -> int:
        """The padding token."""
        return 1 if self.config.pad_token_id is None else self.config.pad_token_id

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def num_parameters(self) -> int:
        """The number of parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """The network of a model folder, in evaluation mode; all weights must be there."""
        return load_model(Path(folder), cls)[0]

    def save_pretrained(self, folder: str | Path) -> None:
        """Write configuration and weights into a folder; the tokenizer has to be saved there, too."""
        write_model(Path(folder), self)


def build_embedding(config: ModelConfig, pad: int, *segments: Any) -> Embedding:
    """The embedding of a configuration; ``segments`` as in `Embedding`."""
    return Embedding(
        config.vocab_size,
        config.hidden_size,
        pad,
        config.dropout,
        *segments,
        positioned=config.positions_at == "input",
        position_vectors=config.position_vectors,
        longest=config.max_position_embeddings,
        scale=config.scale_embedding,
        norm_eps=config.layer_norm_eps if config.embedding_norm else None,
        output_bias=config.output_bias,
    )


def key_mask(real: Tensor | None) -> Tensor | None:
    """A mask of real tokens, (B, S), as a mask over keys, (B, 1, 1, S)."""
    return None if real is None else real[:, None, None, :]
