"""Building blocks: attention, feed-forward, embeddings, cache, and the one layer that a scheme drives."""

from typing import TYPE_CHECKING

from macaron import lazy

if TYPE_CHECKING:
    from macaron.nn.attention import Context, CrossAttention, KeyValueCache, SelfAttention
    from macaron.nn.budget import LayerSettings, layer_parameters, layer_widths
    from macaron.nn.compat import TransformerDecoderLayer, TransformerEncoderLayer
    from macaron.nn.embedding import Embedding, sinusoids
    from macaron.nn.layer import SchemeLayer, SubLayer, build_layer
    from macaron.nn.linear import FeedForward
    from macaron.nn.stack import Stack

__all__ = [
    "Context",
    "CrossAttention",
    "Embedding",
    "FeedForward",
    "KeyValueCache",
    "LayerSettings",
    "SchemeLayer",
    "SelfAttention",
    "Stack",
    "SubLayer",
    "TransformerDecoderLayer",
    "TransformerEncoderLayer",
    "build_layer",
    "layer_parameters",
    "layer_widths",
    "sinusoids",
]

# Widths and settings are needed without torch, by configurations.
__getattr__ = lazy(
    __name__,
    attention=["Context", "CrossAttention", "KeyValueCache", "SelfAttention"],
    budget=["LayerSettings", "layer_parameters", "layer_widths"],
    compat=["TransformerDecoderLayer", "TransformerEncoderLayer"],
    embedding=["Embedding", "sinusoids"],
    layer=["SchemeLayer", "SubLayer", "build_layer"],
    linear=["FeedForward"],
    stack=["Stack"],
)
