"""On a CPU the loss is computed for tokens alone: the same numbers and gradients as with the padding."""

from typing import Any

import pytest
import torch
from torch import Tensor

from macaron.models import TranslationModel, preset
from macaron.tasks.translation import TranslationBatch, TranslationLoss
from macaron.text.vocabulary import EOS, PAD

NONE = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
NETWORKS = [
    {},
    {"scheme": "parallel", "norm": "post"},
    {"attention": "relative"},
    {"attention": "dynamic"},
    {"velocity": "damped"},
    {"positions_at": "layers"},
    {"prologue": [["G", 0.5]], "integrator": "heun"},
]


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("changes", NETWORKS, ids=str)
def test_losses_and_gradients(changes: dict[str, Any], left: bool):
    torch.manual_seed(1)
    loss = TranslationLoss(TranslationModel(preset("macaron-tiny", vocab_size=60, **NONE, **changes)), 0.1)
    source, target = (torch.randint(4, 60, (5, width)) for width in (9, 11))
    for row in range(5):
        gap = slice(0, 4 - row) if left else slice(5 + row, None)  # the authors pad sources on the left
        source[row, gap], target[row, 7 + row :] = PAD, PAD
    previous = torch.roll(target, 1, dims=1)
    previous[:, 0] = EOS
    batch = TranslationBatch(source, target, previous)

    def computed(padded: bool) -> list[Tensor]:
        loss.zero_grad()
        loss.model.encoder.needs_positions = padded  # which is computed with padding
        sums = loss(batch)
        sums[0].backward()
        return [sums.detach(), *(torch.zeros(()) if p.grad is None else p.grad.clone() for p in loss.parameters())]

    for found, expected in zip(computed(False), computed(True), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
