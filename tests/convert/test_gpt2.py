"""GPT-2 folders of transformers, converted: the same logits, gradients and continuations."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from macaron.convert import convert_huggingface
from macaron.errors import MacaronError
from macaron.models import LanguageModel

END = "<|endoftext|>"
TEXTS = ["The cat sees the dog.", "don't  run", "naïve 東京 2026", " leading"]
SPECIALS = 6


def gpt2(folder: Path, rows: int = 400, **changes) -> GPT2LMHeadModel:
    backend = Tokenizer(BPE())
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(vocab_size=300, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    backend.train_from_iterator(TEXTS * 9, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END, bos_token=END)
    torch.manual_seed(3)
    end = tokenizer.convert_tokens_to_ids(END)
    sizes = {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64, "vocab_size": rows}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=end, eos_token_id=end, **changes)).eval()
    for parameter in model.parameters():  # biases and norms, too
        parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def new_ids(ids: torch.Tensor, end: int) -> torch.Tensor:
    """Ours of theirs: special tokens first, then all others in their order."""
    return torch.where(ids == end, 2, ids + SPECIALS - (ids > end).long())


@pytest.mark.parametrize(
    "changes",
    [{}, {"activation_function": "relu", "n_inner": 80}, {"layer_norm_epsilon": 1e-3, "activation_function": "swish"}],
)
def test_logits_gradients_and_generation_are_those_of_gpt2(tmp_path: Path, changes: dict[str, object]):
    theirs = gpt2(tmp_path / "gpt2", **changes)
    end = theirs.config.eos_token_id
    convert_huggingface(tmp_path / "gpt2", tmp_path / "ours")
    ours = LanguageModel.from_pretrained(tmp_path / "ours")
    torch.manual_seed(0)
    ids = torch.randint(0, 400, (3, 20))
    rows = new_ids(torch.arange(400), end)
    logits, wanted = ours(new_ids(ids, end)), theirs(ids).logits
    torch.testing.assert_close(logits[..., rows], wanted, atol=1e-5, rtol=1e-5)
    assert torch.allclose(logits.softmax(-1).sum(-1), logits[..., rows].softmax(-1).sum(-1))
    assert float(logits.detach().softmax(-1)[..., [0, 1, 3, 4, 5]].max()) == 0

    direction = torch.randn_like(wanted)
    (logits[..., rows] * direction).sum().backward()
    (wanted * direction).sum().backward()
    first, last = ours.decoder.layers[0].sublayers, ours.decoder.layers[2].sublayers
    pairs = {
        theirs.transformer.wte.weight: ours.embedding.tokens.weight.grad[rows],
        theirs.transformer.wpe.weight: ours.embedding.positions.weight.grad,
        theirs.transformer.h[0].attn.c_attn.weight: first["F1"].operator.qkv.weight.grad.T,
        theirs.transformer.h[0].ln_2.bias: first["G1"].norm.bias.grad,
        theirs.transformer.h[2].mlp.c_proj.weight: last["G1"].operator.fc2.weight.grad.T,
        theirs.transformer.ln_f.weight: ours.decoder.norm.weight.grad,
    }
    for parameter, gradient in pairs.items():
        scale = float(parameter.grad.abs().max())
        torch.testing.assert_close(gradient / scale, parameter.grad / scale, atol=1e-5, rtol=1e-4)


def test_text_goes_in_and_comes_out_as_with_transformers(tmp_path: Path):
    theirs = gpt2(tmp_path / "gpt2")
    end = theirs.config.eos_token_id
    convert_huggingface(tmp_path / "gpt2", tmp_path / "ours")
    tokens = [AutoTokenizer.from_pretrained(tmp_path / name) for name in ("gpt2", "ours")]
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    for text in TEXTS:
        ids = [tokenizer(text, return_tensors="pt")["input_ids"] for tokenizer in tokens]
        assert new_ids(ids[0], end).tolist() == ids[1].tolist()
        assert tokens[1].decode(ids[1][0]) == text
        found = [
            model.generate(each, do_sample=False, max_new_tokens=12, pad_token_id=pad)
            for model, each, pad in zip((theirs, ours), ids, (end, 1), strict=True)
        ]
        assert new_ids(found[0], end).tolist() == found[1].tolist()


def test_the_command(tmp_path: Path, macaron):
    gpt2(tmp_path / "gpt2")
    done = macaron("convert", "huggingface", tmp_path / "gpt2", "--out", tmp_path / "ours")
    assert "language model: lie-fg, pre-norm, 3 layers, hidden 48" in done.stdout
    again = macaron("convert", "huggingface", tmp_path / "gpt2", "--out", tmp_path / "ours")
    assert again.returncode == 1
    assert "--force" in again.stderr


def changed(folder: Path, **changes) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llama"}, "model_type = 'llama'"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings = False"),
        ({"add_cross_attention": True}, "add_cross_attention = True"),
        ({"activation_function": "tanh"}, "activation_function = 'tanh'"),
        ({"architectures": ["GPT2ForSequenceClassification"]}, "architectures = "),
        ({"n_embd": 64}, "size mismatch for"),
        ({"n_layer": 4}, "lack 'transformer.h.3"),
        ({"n_layer": 2}, "contain 'transformer.h.2"),
        ({"n_head": "4"}, "n_head in config.json should be a number"),
        ({"n_head": 5}, "hidden_size"),
        ({"eos_token_id": 4000}, "eos_token_id in config.json"),
    ],
)
def test_what_is_not_supported_is_refused_by_its_key(tmp_path: Path, changes: dict[str, object], message: str):
    gpt2(tmp_path / "gpt2")
    changed(tmp_path / "gpt2", **changes)
    with pytest.raises(MacaronError, match=message) as refused:
        convert_huggingface(tmp_path / "gpt2", tmp_path / "ours")
    assert str(refused.value).startswith(str(tmp_path / "gpt2"))
    assert not (tmp_path / "ours").exists()


def test_a_folder_without_tokenizer_or_weights_is_refused(tmp_path: Path):
    gpt2(tmp_path / "gpt2")
    (tmp_path / "gpt2" / "tokenizer.json").unlink()
    with pytest.raises(MacaronError, match=r"no tokenizer\.json"):
        convert_huggingface(tmp_path / "gpt2", tmp_path / "ours")
    (tmp_path / "gpt2" / "model.safetensors").unlink()
    with pytest.raises(MacaronError, match="no weights"):
        convert_huggingface(tmp_path / "gpt2", tmp_path / "ours")


def test_weights_in_pytorchs_format_are_read_without_running_code(tmp_path: Path):
    theirs = gpt2(tmp_path / "gpt2")
    (tmp_path / "gpt2" / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), tmp_path / "gpt2" / "pytorch_model.bin")
    convert_huggingface(tmp_path / "gpt2", tmp_path / "ours")
    ids = torch.randint(0, 300, (2, 9))
    found = LanguageModel.from_pretrained(tmp_path / "ours")(new_ids(ids, theirs.config.eos_token_id))
    rows = new_ids(torch.arange(400), theirs.config.eos_token_id)
    torch.testing.assert_close(found[..., rows], theirs(ids).logits, atol=1e-5, rtol=1e-5)
