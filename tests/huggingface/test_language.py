"""Transformers' class of the language model: Auto classes, loss, generation with its cache, left padding."""

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, pipeline

import macaron  # noqa: F401  (registers the Auto classes)
from macaron.errors import MacaronError
from macaron.huggingface import HFLanguageModel
from macaron.models import LanguageConfig, LanguageModel, preset
from macaron.text import MacaronTokenizer

PAD, EOS = 1, 2
TINY = {"vocab_size": 24, "hidden_size": 32, "intermediate_size": 64}
PROMPTS = torch.tensor([[PAD, PAD, EOS, 9], [EOS, 5, 6, 7], [PAD, EOS, 11, 12]])
SCHEMES = [
    {},
    {"scheme": "lie-fg", "norm": "post"},
    {"scheme": "sws", "integrator": "midpoint"},
    {"tying": "depth", "prologue": [["G", 0.5]], "epilogue": [["F", 1], ["G", 0.5]], "position_vectors": "sinusoidal"},
    {"attention": "rotary", "positions_at": "none", "activation": "swiglu", "norm_type": "rms"},
    {"attention": "relative", "velocity": "nesterov"},
    {"attention": "dynamic", "positions_at": "none"},
    {"output_bias": True, "embedding_norm": True, "scale_embedding": False},
]


def model(**changes) -> HFLanguageModel:
    torch.manual_seed(0)
    made = HFLanguageModel(preset("macaron-gpt-tiny", **{**TINY, **changes})).eval()
    made.embedding.tokens.weight.data *= 3  # sharper, so that continuations do not tie
    return made


@pytest.mark.parametrize("changes", SCHEMES)
def test_save_and_load_is_bit_for_bit(tmp_path: Path, changes: dict[str, object]):
    saved = model(**changes)
    saved.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(loaded) is HFLanguageModel
    assert AutoConfig.from_pretrained(tmp_path).core == saved.config.core
    assert torch.equal(loaded(PROMPTS).logits, saved(PROMPTS).logits)
    plain = LanguageModel.from_pretrained(tmp_path)
    assert torch.equal(plain(PROMPTS), saved(PROMPTS).logits)


@pytest.mark.parametrize("changes", SCHEMES)
def test_generate_is_the_same_with_and_without_cache_and_padding(changes: dict[str, object]):
    made, real = model(**changes), PROMPTS != PAD
    options = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": PAD}
    found = made.generate(PROMPTS, attention_mask=real.long(), **options)
    assert torch.equal(found, made.generate(PROMPTS, attention_mask=real.long(), use_cache=False, **options))
    for row, given, own in zip(PROMPTS, real, found, strict=True):
        alone = made.generate(row[given][None], **options)[0]
        assert alone.tolist() == own[len(given) - int(given.sum()) :][: len(alone)].tolist()
    # Greedy generation by hand, without a cache.
    text = PROMPTS[1:2]
    while text.shape[1] < found.shape[1] and int(text[0, -1]) != EOS:
        text = torch.cat([text, made(text).logits[:, -1].argmax(-1)[:, None]], 1)
    assert text[0].tolist() == found[1][: text.shape[1]].tolist()


def test_samples_repeat_with_their_seed():
    made, drawn = model(), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(made.generate(PROMPTS[1:2], do_sample=True, top_k=8, max_new_tokens=12).tolist())
    assert drawn[0] == drawn[1] != drawn[2]


def test_no_position_sees_a_later_one():
    made = model()
    changed = PROMPTS.clone()
    changed[:, 3] = 20
    torch.testing.assert_close(made(changed).logits[:, :3], made(PROMPTS).logits[:, :3])
    assert not torch.allclose(made(changed).logits[:, 3], made(PROMPTS).logits[:, 3])


def test_the_loss_is_the_mean_over_the_next_tokens():
    made, labels = model(), torch.tensor([[EOS, 5, 6, EOS, PAD], [EOS, 7, EOS, PAD, PAD]])
    out = made(labels, labels=labels, output_hidden_states=True, output_attentions=True)
    chances = out.logits.log_softmax(-1)
    wanted = [-chances[0, i, labels[0, i + 1]] for i in range(3)] + [-chances[1, i, labels[1, i + 1]] for i in range(2)]
    torch.testing.assert_close(out.loss, torch.stack(wanted).mean())
    assert len(out.hidden_states) == 3
    assert len(out.attentions) == 2
    kept = made(labels, logits_to_keep=1).logits
    torch.testing.assert_close(kept, out.logits[:, -1:])


def test_text_generation(tmp_path: Path):
    lines = ["the cat sees the dog", "a dog sees a cat", "the dog and the cat"] * 5
    tokenizer = MacaronTokenizer.train(lines, 300, kind="language")
    config = preset("gpt-tiny", hidden_size=32, intermediate_size=64, vocab_size=len(tokenizer))
    HFLanguageModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    read = AutoTokenizer.from_pretrained(tmp_path)
    batch = read(["the cat", "a dog sees"], padding=True, return_tensors="pt")
    assert batch["input_ids"][:, -1].ne(PAD).all()
    assert batch["input_ids"][0, 0] == PAD
    assert batch["input_ids"][1].tolist() == tokenizer.encode_lines(["a dog sees"])[0]
    assert batch["input_ids"][1, 0] == EOS
    write = pipeline("text-generation", model=str(tmp_path), tokenizer=read)
    found = write(["the cat", "a dog sees"], max_new_tokens=4, do_sample=False, batch_size=2)
    assert [each[0]["generated_text"][:7] for each in found] == ["the cat", "a dog s"]


def test_a_language_model_needs_self_attention_and_has_no_cross_attention():
    with pytest.raises(MacaronError, match="language model lacks"):
        LanguageConfig(scheme="strang-gfhg")
    with pytest.raises(MacaronError, match="no self-attention"):
        LanguageConfig(scheme={"name": "g", "branches": [{"weight": 1.0, "steps": [["G", 1.0]]}]})
