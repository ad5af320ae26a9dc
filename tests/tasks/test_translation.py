"""The loss of a batch does not depend on how it is laid out."""

import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from macaron.data.batching import Rows, bucket
from macaron.data.prepared import PairStore
from macaron.data.store import StoreWriter, TokenStore
from macaron.models import TranslationModel, preset
from macaron.tasks.translation import TranslationBatch, TranslationLoss, packed_batch, padded_batch, plan_packed
from macaron.text.vocabulary import EOS, PAD

VOCABULARY, WIDTH = 50, 24
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> PairStore:
    folder, generator = tmp_path_factory.mktemp("pairs"), random.Random(5)
    stores = []
    for side in ("src", "tgt"):
        with StoreWriter(folder / side, VOCABULARY) as writer:
            # Some as long as a row: then one side of it is full and the other is not.
            lengths = [generator.choice([1, 3, 5, 8, 13, WIDTH - 1]) for _ in range(40)]
            sequences = [[generator.randrange(4, VOCABULARY) for _ in range(n)] + [EOS] for n in lengths]
            writer.append(np.concatenate(sequences), np.array(lengths) + 1)
        stores.append(TokenStore(folder / side, VOCABULARY, writer.sequences, writer.tokens))
    return PairStore(*stores)


def loss_module(**changes: Any) -> TranslationLoss:
    torch.manual_seed(0)
    config = preset(
        "macaron-tiny",
        **{
            "vocab_size": VOCABULARY,
            "hidden_size": 16,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
            **changes,
        },
    )
    return TranslationLoss(TranslationModel(config).double(), 0.1)


def sums_and_gradients(
    module: TranslationLoss, batches: list[TranslationBatch]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    module.zero_grad()
    total = torch.zeros(2, dtype=torch.float64)
    for batch in batches:
        losses = module(batch)
        losses[0].backward()
        total += losses.detach()
    return total, {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def padded_batches(pairs: PairStore, max_tokens: int) -> list[TranslationBatch]:
    found = bucket(pairs.source.lengths(), pairs.target.lengths(), max_tokens, 0)
    return [padded_batch(pairs, indices, CPU) for indices in found]


def packed_batches(pairs: PairStore, rows_per_batch: int) -> list[TranslationBatch]:
    pieces = plan_packed(pairs, np.arange(len(pairs)), WIDTH, rows_per_batch, 3, 1)
    assert sum(piece.targets for piece in pieces) == pairs.target.tokens
    batches = [piece.collate(CPU) for piece in pieces]
    assert {batch.source.shape for batch in batches} == {(rows_per_batch, WIDTH)}
    return batches


def assert_same(one: Any, other: Any, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(one[0], other[0], rtol=tolerance, atol=tolerance)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        torch.testing.assert_close(
            gradient, other[1][name], rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"scheme": "strang-gfg"},
        {"scheme": "lie-fg"},
        {"scheme": "parallel"},
        {"scheme": "mclachlan2-gfgfg", "norm": "post"},
        {"decoder_scheme": "strang3-gfhfg", "tying": "depth"},
        {"scheme": "lie-fg", "prologue": [["G", 0.5]], "epilogue": [["G", 0.5]]},
        {"integrator": "midpoint"},
    ],
    ids=str,
)
def test_packed_is_padded(changes: dict[str, Any], pairs: PairStore):
    module = loss_module(**changes)
    padded = sums_and_gradients(module, padded_batches(pairs, 100))
    assert_same(padded, sums_and_gradients(module, packed_batches(pairs, 4)))
    # One pair at a time: nothing to pad, nothing to pack.
    single = [padded_batch(pairs, np.array([i]), CPU) for i in range(len(pairs))]
    assert_same(padded, sums_and_gradients(module, single))


def test_accumulated_is_one_big_batch(pairs: PairStore):
    module = loss_module()
    big = sums_and_gradients(module, [padded_batch(pairs, np.arange(len(pairs)), CPU)])
    assert_same(big, sums_and_gradients(module, padded_batches(pairs, 60)))


def test_the_loss_is_pytorchs(pairs: PairStore):
    module = loss_module()
    batch = padded_batch(pairs, np.arange(len(pairs)), CPU)
    real = batch.source != PAD
    logits = module.model.logits(module.model.decode(batch.previous, module.model.encode(batch.source, real), real))
    flat, target = logits.flatten(0, 1), batch.target.flatten()
    loss = F.cross_entropy(flat, target, ignore_index=PAD, label_smoothing=0.1, reduction="sum")
    nll = F.cross_entropy(flat, target, ignore_index=PAD, reduction="sum")
    torch.testing.assert_close(module(batch), torch.stack([loss, nll]), rtol=1e-12, atol=1e-12)


def test_rows_beyond_the_last_are_empty_and_cost_nothing(pairs: PairStore):
    module = loss_module()
    alone = module(padded_batch(pairs, np.array([0]), CPU))
    with_empty = packed_batch(pairs, Rows(np.array([0]), np.array([0]), 3), WIDTH, CPU)
    torch.testing.assert_close(module(with_empty), alone)
    nothing = packed_batch(pairs, Rows(np.arange(0), np.arange(0), 2), WIDTH, CPU)
    assert module(nothing).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_acts_in_every_layout(name: str, pairs: PairStore):
    module = loss_module(**{name: 0.5})
    padded, packed = padded_batches(pairs, 100)[0], packed_batches(pairs, 4)[0]
    for batch, needs in ((padded, False), (padded, True), (packed, False)):
        module.model.encoder.needs_positions = needs  # then it is computed with its padding
        losses = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            losses.append(module(batch)[0].item())
        assert losses[0] == losses[1] != losses[2]
