"""Networks with every operator, as fields of a configuration: the tests of operators run over all of them."""

from typing import Any

import torch

from macaron.models import TranslationModel, preset

OPERATORS: dict[str, dict[str, Any]] = {
    "relu2": {"activation": "relu2"},
    "silu, rms": {"activation": "silu", "norm_type": "rms"},
    "glu": {"activation": "glu", "norm": "post"},
    "swiglu, rms, post": {"activation": "swiglu", "norm_type": "rms", "norm": "post"},
    "geglu": {"activation": "geglu", "scheme": "strang-gfg"},
    "gelu and swiglu": {"activation": ["gelu", "swiglu"], "scheme": "strang-gfg"},
    "rotary": {"attention": "rotary"},
    "relative": {"attention": {"positions": "relative", "clip": 3}},
    "qk-norm": {"attention": "qk-norm", "cross_attention": "qk-norm"},
    "rotary, qk-norm, heun": {"attention": {"positions": "rotary", "qk_norm": True}, "integrator": "heun"},
    "relative encoder, rotary decoder": {
        "attention": {"positions": "relative", "clip": 2},
        "decoder_settings": {"attention": "rotary", "activation": "swiglu", "norm_type": "rms"},
    },
    "heavy ball": {"velocity": "heavy-ball"},
    "nesterov, learned by channel, post": {
        "velocity": {"beta": 0.5, "mu": 0.5, "learned": "channel"},
        "scheme": "strang-gfg",
        "norm": "post",
    },
    "damped, learned, tied": {"velocity": {"beta": 0.5, "nu": 0.5, "learned": "sublayer"}, "tying": "depth"},
    "adams-bashforth encoder": {"velocity": "adams-bashforth", "decoder_settings": {"velocity": "none"}},
    "whole layers by rk4": {"layer_integrator": "rk4", "attention": "relative"},
    "whole layers by heun": {"layer_integrator": "heun", "scheme": "parallel", "attention": "rotary"},
    "dynamic convolutions": {"attention": {"kind": "dynamic", "kernels": [3, 5]}},
    "lightweight encoder, dynamic decoder": {
        "attention": {"kind": "lightweight", "kernels": [4, 31], "glu": False},
        "decoder_settings": {"attention": {"kind": "dynamic", "kernels": [2]}},
        "positions_at": "none",
        "scheme": "strang-gfg",
    },
    "weighted": {
        "attention": "weighted",
        "cross_attention": "weighted",
        "scheme": {"name": "f", "branches": [{"weight": 1.0, "steps": [["F", 1.0]]}]},
        "decoder_settings": {"attention": "softmax"},
    },
    "weighted and G, gated": {"attention": {"kind": "weighted", "qk_norm": True}, "activation": "swiglu"},
    "universal": {"positions_at": "layers", "tying": "depth", "norm": "post"},
    "universal with a velocity": {"positions_at": "layers", "tying": "depth", "velocity": "damped"},
    "relative, no position vectors": {"attention": "relative", "positions_at": "none"},
}
SIZES = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "encoder_layers": 2, "decoder_layers": 2}


def tiny(changes: dict[str, Any], vocabulary: int = 30, scale: float = 1.0) -> TranslationModel:
    """A random model without zeros and ones among its weights; a scale above 1 tells sources apart more clearly."""
    torch.manual_seed(0)
    fields = {"scheme": "lie-fg", "vocab_size": vocabulary, **SIZES, **changes}
    model = TranslationModel(preset("transformer-tiny", **fields)).eval()
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            for parameter in stack.parameters():
                parameter.mul_(scale if parameter.dim() > 1 else 1).add_(0.1 * torch.randn_like(parameter))
    return model
