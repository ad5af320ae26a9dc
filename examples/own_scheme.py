"""A splitting scheme of your own, and a network that trains with it, in one file.

The task is to sort digits: the decoder must look at all of the source (attention) and count (feed-forward).
Run it: python examples/own_scheme.py
"""

import torch

from macaron.huggingface import HFTranslationModel
from macaron.models import TranslationConfig
from macaron.ode import Scheme

# Half an attention, the feed-forward network in two unequal parts around the other half. Checked when made:
# the coefficients of each operator must sum to 1. Its order is computed, not claimed.
SCHEME = Scheme.sequence("mine-fgfg", ("F", 0.5), ("G", 0.75), ("F", 0.5), ("G", 0.25))

FIRST_DIGIT, PAD, EOS = 4, 1, 2


def batch(size: int, generator: torch.Generator, length: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Random digits (B, 7) and the same sorted, both with their end."""
    digits = torch.randint(FIRST_DIGIT, FIRST_DIGIT + 10, (size, length), generator=generator)
    end = torch.full((size, 1), EOS)
    return torch.cat([digits, end], 1), torch.cat([digits.sort(dim=1).values, end], 1)


def main(updates: int = 300) -> float:
    """Train, and return the share of unseen sequences that greedy decoding sorts without a mistake."""
    print(f"{SCHEME.name}: order {SCHEME.order}, leading error {SCHEME.leading_error:.3f}")
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network gains nothing from more
    config = TranslationConfig(
        vocab_size=FIRST_DIGIT + 10,
        hidden_size=64,
        num_attention_heads=4,
        intermediate_size=256,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        scheme=SCHEME,
    )
    model = HFTranslationModel(config)  # a class of transformers: it computes the loss and has generate()
    print(f"{model.num_parameters():,} parameters")
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=4e-3, total_steps=updates)
    generator = torch.Generator().manual_seed(1)
    for update in range(updates):
        source, target = batch(64, generator)
        loss = model(source, labels=target).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rate.step()
        if update % 50 == 49:
            print(f"update {update + 1}: loss {loss.item():.4f}")
    source, target = batch(200, generator)
    made = model.eval().generate(source, max_new_tokens=8, do_sample=False)[:, 1:8]
    right = (made == target).all(1).float().mean().item()
    print(f"sorted without a mistake: {right:.0%} of 200 unseen sequences")
    return right


if __name__ == "__main__":
    main()
