"""A packed language model on a CPU, and a cache, give what the plain model gives, whatever its operators are."""

from typing import Any

import pytest
import torch

from macaron.decode.cpu.model import CpuLanguageModel
from macaron.models import LanguageModel, preset
from macaron.models.translation import DecoderNetwork
from macaron.nn.attention import KeyValueCache

SMALL = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 64, "dropout": 0.0, "attention_dropout": 0.0}
CASES: list[dict[str, Any]] = [
    {},
    {"scheme": "lie-fg", "norm": "post", "output_bias": True},
    {"scheme": "parallel", "norm_type": "rms"},
    {"scheme": "yoshida4-gfg", "activation": "swiglu"},
    {"attention": {"positions": "rotary", "qk_norm": True}, "positions_at": "none"},
    {"attention": "relative", "velocity": "nesterov"},
    {"attention": "dynamic", "integrator": "midpoint"},
    {"positions_at": "layers", "tying": "depth", "layer_integrator": "heun"},
    {"prologue": [["G", 0.5]], "epilogue": [["F", 1.0], ["G", 0.5]], "position_vectors": "sinusoidal"},
]


def in_steps(model: DecoderNetwork, ids: torch.Tensor, first: int) -> torch.Tensor:
    """Logits with a cache: some tokens at once, then one by one."""
    cache = KeyValueCache()
    parts = [ids[:, :first], *ids[:, first:].split(1, dim=1)]
    return torch.cat([model.logits(model.decode(part, cache=cache)) for part in parts], dim=1)


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_logits_are_those_of_the_plain_model(changes: dict[str, Any]):
    torch.manual_seed(1)
    plain = LanguageModel(preset("macaron-gpt-tiny", **SMALL, **changes)).eval()
    for parameter in plain.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    ids = torch.randint(4, 60, (5, 12))
    with torch.inference_mode():
        packed, expected = CpuLanguageModel(plain), plain(ids)
        found = [packed(ids), in_steps(plain, ids, 5), in_steps(packed, ids, 5), packed(ids[:1])]
    for each in found:
        torch.testing.assert_close(each, expected[: len(each)], atol=1e-5, rtol=1e-5)
