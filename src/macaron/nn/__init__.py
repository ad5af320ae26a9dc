"""Building blocks: attention, feed-forward, embeddings, cache, and the one layer that a scheme drives."""

from macaron.nn.attention import Cache, Context, CrossAttention, SelfAttention
from macaron.nn.budget import LayerShape, layer_parameters, layer_widths
from macaron.nn.cache import KeyValueCache
from macaron.nn.compat import TransformerDecoderLayer, TransformerEncoderLayer
from macaron.nn.embedding import Embedding, sinusoids
from macaron.nn.feedforward import FeedForward
from macaron.nn.layer import LayerSettings, SchemeLayer, SubLayer, build_layer
from macaron.nn.stack import Stack

__all__ = [
    "Cache",
    "Context",
    "CrossAttention",
    "Embedding",
    "FeedForward",
    "KeyValueCache",
    "LayerSettings",
    "LayerShape",
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
