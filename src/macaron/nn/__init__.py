"""Building blocks: attention, feed-forward, embeddings, cache, and the one layer that a scheme drives."""

from typing import TYPE_CHECKING

from macaron import lazy

if TYPE_CHECKING:
    from macaron.nn.attention import Context as Context
    from macaron.nn.attention import CrossAttention as CrossAttention
    from macaron.nn.attention import KeyValueCache as KeyValueCache
    from macaron.nn.attention import SelfAttention as SelfAttention
    from macaron.nn.budget import LayerSettings as LayerSettings
    from macaron.nn.compat import TransformerDecoderLayer as TransformerDecoderLayer
    from macaron.nn.compat import TransformerEncoderLayer as TransformerEncoderLayer
    from macaron.nn.embedding import Embedding as Embedding
    from macaron.nn.embedding import sinusoids as sinusoids
    from macaron.nn.layer import SchemeLayer as SchemeLayer
    from macaron.nn.layer import SubLayer as SubLayer
    from macaron.nn.layer import build_layer as build_layer
    from macaron.nn.layer import layer_parameters as layer_parameters
    from macaron.nn.layer import layer_widths as layer_widths
    from macaron.nn.linear import FeedForward as FeedForward
    from macaron.nn.stack import Stack as Stack

# Widths and settings are needed without torch, by configurations.
__getattr__ = lazy(__name__, __file__)
