"""Five updates of the authors' pre-training, through the pieces that training is made of."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from macaron.convert.fairseq import build_model, weight_names
from macaron.convert.fairseq_checkpoint import read_checkpoint
from macaron.nn.embedding import token_positions
from macaron.tasks.pretraining import PretrainingLoss
from macaron.tasks.pretraining_batches import PretrainingBatch
from macaron.train.optimiser import Optimiser, learning_rate
from macaron.train.settings import PretrainSettings, TrainSettings

GOLDEN = Path(__file__).parent.parent / "golden" / "bert_tiny_macaron"
PAD = 1
pytestmark = pytest.mark.golden


def recorded_batch() -> tuple[PretrainingBatch, int]:
    """The recorded rows as a batch of ours, and its number of targets (``<cls>`` is one in each row)."""
    with np.load(GOLDEN / "io.npz") as file:
        io = {key: torch.from_numpy(file[key]) for key in file}
    ids, target = io["src_tokens"], io["target"]
    real = ids != PAD
    rows, width = ids.shape
    masked = io["output_mask"].flatten().nonzero().squeeze(1)
    words = len(masked)
    # As training has it: in one list with places that have no target, in both.
    batch = PretrainingBatch(
        ids=ids,
        positions=token_positions(real),
        text=real.long(),
        segments=io["segment"],
        masked=torch.cat([masked, torch.tensor([7, 3])]),
        targets=torch.cat([target.flatten()[masked], torch.tensor([PAD, PAD])]),
        firsts=torch.cat([torch.arange(rows) * width, torch.tensor([5])]),
        follows=torch.cat([io["label"], torch.tensor([-1])]),
        weights=torch.tensor([1.0, words / rows]),
        starts=torch.zeros(1, dtype=torch.int32),  # for fused kernels
    )
    return batch, words


def test_five_updates():
    recorded = json.loads((GOLDEN / "traj.json").read_text())
    model = build_model(read_checkpoint(GOLDEN / "checkpoint_min.pt"), "bert")
    settings = TrainSettings(  # the authors' script
        max_updates=800_000,
        learning_rate=3e-4,
        betas=(0.9, 0.999),
        epsilon=1e-6,
        weight_decay=0.01,
        schedule="linear",
        warmup=1,
        warmup_rate=3e-4,
    )
    module = PretrainingLoss(model, PretrainSettings(cls_target=True)).eval()  # recorded without dropout
    optimiser = Optimiser(module, settings)
    batch, words = recorded_batch()
    for update, step in enumerate(recorded):
        losses = module(batch)
        assert (losses.detach() / words).tolist() == pytest.approx(
            [step["loss"], step["mlm_loss"], step["nsp_loss"]], abs=1e-5
        )
        (losses[0] / words).backward()
        norm = torch.stack([p.grad.norm() for p in module.parameters()]).norm()
        assert norm.item() == pytest.approx(step["gnorm"], rel=1e-4)
        rate = learning_rate(settings, update, update / settings.max_updates)
        before = recorded[update - 1]["lr_after"] if update else 3e-4
        # Theirs falls from the first update on, ours from none: a millionth of the rate.
        assert rate == pytest.approx(before, rel=2e-6)
        optimiser.step(rate, update)

    final = np.load(GOLDEN / "weights_after_5.npz")
    ours = model.state_dict()
    compared = 0
    for theirs, names in weight_names(model.config, "bert").items():
        stacked, expected = torch.cat([ours[name] for name in names]), torch.from_numpy(final[theirs])
        if theirs.endswith("in_proj_bias"):
            # The key third has gradient zero but for rounding, which Adam turns into steps.
            third = len(expected) // 3
            stacked, expected = (torch.cat([each[:third], each[2 * third :]]) for each in (stacked, expected))
        torch.testing.assert_close(stacked, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
        compared += 1
    assert compared > 20
