"""Translating a whole test set: order, empty sentences, batches."""

import torch

from macaron.decode.settings import SearchSettings
from macaron.evaluate.model import translate_all
from macaron.models import TranslationModel, preset
from macaron.text import MacaronTokenizer


def test_order_batches_and_empty_sources():
    tokenizer = MacaronTokenizer.train(["a b c d e f g"], 270)
    torch.manual_seed(0)
    config = preset(
        "macaron-tiny", vocab_size=len(tokenizer), hidden_size=16, num_attention_heads=2, intermediate_size=32
    )
    model = TranslationModel(config).double()
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.mul_(3.0)
    sources = tokenizer.encode_lines(["a b", "", "c d e f g", "g", "", "e f"])
    settings = SearchSettings(2, 1.0, 6)
    together = translate_all(model, tokenizer, sources, settings, 1000)
    assert together[1] == together[4] == ""
    assert len(set(together)) > 2
    assert translate_all(model, tokenizer, sources, settings, 1) == together
    assert [translate_all(model, tokenizer, [source], settings, 50)[0] for source in sources] == together
    assert translate_all(model, tokenizer, [], settings, 50) == []
    assert not any("\n" in line or "\r" in line for line in together)
