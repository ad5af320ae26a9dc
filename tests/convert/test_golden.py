"""Converted models against numbers recorded from the authors' code, through the saved folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from macaron.convert import convert_fairseq
from macaron.convert.fairseq import weight_names
from macaron.text import verify

TOLERANCE = 1e-5
TRANSLATION = ("tiny_macaron_v2_trained", "tiny_plain_v1_trained")
BERT = "bert_tiny_macaron"
CLASSIFIER = "classifier_tiny_macaron_cross_entropy_classify"
PAD = 1

pytestmark = pytest.mark.golden


def arrays(folder: Path, name: str = "io") -> dict[str, Tensor]:
    with np.load(folder / f"{name}.npz") as file:
        return {key: torch.from_numpy(file[key]) for key in file}


def close(found: Tensor, recorded: Tensor, what: str) -> None:
    """Within the tolerance of the largest entry."""
    assert found.shape == recorded.shape, what
    error = (found.detach() - recorded).abs().max() / recorded.abs().max()
    assert error < TOLERANCE, f"{what}: {error:.1e}"


def compare_gradients(model: Any, kind: Any, recorded: dict[str, Tensor]) -> None:
    """Ours put together as theirs: their in_proj is one matrix, our cross-attention has two."""
    parameters = dict(model.named_parameters())
    names = weight_names(model.config.core, kind)
    names["embed_out"] = names["encoder.embed_tokens.weight"]  # the name under which a BERT's table is recorded
    seen = set()
    for theirs, gradient in recorded.items():
        seen.update(names[theirs])
        found = torch.cat([parameters[ours].grad for ours in names[theirs]])
        if theirs.endswith("in_proj_bias"):
            # The keys' third is left out: a bias on all keys shifts all logits alike, so its true gradient is 0.
            third = len(gradient) // 3
            found, gradient = (torch.cat([g[:third], g[2 * third :]]) for g in (found, gradient))  # noqa: PLW2901
        close(found, gradient, theirs)
    assert seen == set(parameters)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # in float64 only the recorded numbers are rounded
@pytest.mark.parametrize("name", TRANSLATION)
def test_translation(name: str, dtype: torch.dtype, golden: Path, converted: Callable[[str], Path]):
    model = AutoModelForSeq2SeqLM.from_pretrained(converted(name), dtype=dtype).eval()
    io, losses = arrays(golden / name), json.loads((golden / name / "loss.json").read_text())
    target, real = io["target"], io["target"] != PAD
    output = model(
        input_ids=io["src_tokens"],
        decoder_input_ids=io["prev_output_tokens"],
        labels=target,
        output_attentions=True,
        output_hidden_states=True,
    )
    source = ~io["encoder_padding_mask"]
    close(output.encoder_last_hidden_state[source], io["encoder_out_tbc"].transpose(0, 1)[source], "encoder_out")
    close(output.logits[real], io["logits"][real], "logits")
    close(output.logits.log_softmax(-1)[real], io["lprobs"][real], "lprobs")
    close(output.cross_attentions[-1].mean(dim=1)[real], io["attn"][real], "attn")

    plain = model(input_ids=io["src_tokens"], decoder_input_ids=io["prev_output_tokens"])
    close(plain.logits[real], io["logits"][real], "logits by the fused kernel")
    lprobs = plain.logits.log_softmax(-1)[real]
    nll = F.nll_loss(lprobs, target[real], reduction="sum")
    smoothing = losses["label_smoothing"]
    loss = (1 - smoothing) * nll - smoothing / lprobs.shape[-1] * lprobs.sum()
    assert losses["ntokens"] == real.sum()
    assert loss.item() == pytest.approx(losses["loss"], rel=TOLERANCE)
    assert nll.item() == pytest.approx(losses["nll_loss"], rel=TOLERANCE)
    assert output.loss.item() * losses["ntokens"] == pytest.approx(losses["nll_loss"], rel=TOLERANCE)
    loss.backward()
    compare_gradients(model, "translation", arrays(golden / name, "grads"))


def test_the_decoder_input_can_be_made_from_labels(golden: Path, converted: Callable[[str], Path]):
    model = AutoModelForSeq2SeqLM.from_pretrained(converted(TRANSLATION[0])).eval()
    io = arrays(golden / TRANSLATION[0])
    real = io["target"] != PAD
    output = model(input_ids=io["src_tokens"], labels=io["target"].masked_fill(~real, -100))
    close(output.logits[real], io["logits"][real], "logits")


@pytest.mark.parametrize("name", TRANSLATION)
def test_greedy_generation_and_text(name: str, golden: Path, converted: Callable[[str], Path]):
    model = AutoModelForSeq2SeqLM.from_pretrained(converted(name)).eval()
    tokenizer = AutoTokenizer.from_pretrained(converted(name))
    verify(tokenizer, model.config)
    record = json.loads((golden / name / "beam.json").read_text())
    best = [hypotheses[0]["tokens"] for hypotheses in record["settings"]["beam1"]]
    sources = torch.tensor(record["src_tokens"])
    made = model.generate(
        sources, attention_mask=(sources != PAD).long(), max_length=record["maxlen"] + 2, do_sample=False
    )
    assert [[token for token in row[1:] if token != PAD] for row in made.tolist()] == best

    # Text in, text out: the recorded ids come from this text, and padding on the other side changes nothing.
    texts = tokenizer.batch_decode(sources, skip_special_tokens=True)
    assert texts[0] == " ".join(f"tok{index - 4}" for index in record["src_tokens"][0][:-1])
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    assert batch["input_ids"][0].tolist() == record["src_tokens"][0]
    again = model.generate(**batch, max_length=record["maxlen"] + 2)
    expected = [" ".join(f"tok{token - 4}" for token in tokens[:-1]) for tokens in best]
    assert tokenizer.batch_decode(again, skip_special_tokens=True) == expected


def test_bert(golden: Path, converted: Callable[[str], Path]):
    model = AutoModelForPreTraining.from_pretrained(converted(BERT)).eval()
    io, losses = arrays(golden / BERT), json.loads((golden / BERT / "loss.json").read_text())
    inputs = {"input_ids": io["src_tokens"], "token_type_ids": io["segment"]}
    masked = io["target"] != PAD
    assert torch.equal(masked, io["output_mask"])
    output = model(**inputs, labels=io["target"], next_sentence_label=io["label"])
    close(output.prediction_logits[masked], io["mlm_logits"], "mlm_logits")
    close(output.seq_relationship_logits[:, 0], io["nsp_logits"], "nsp_logits")
    states = model.model(**inputs).last_hidden_state
    real = io["src_tokens"] != PAD
    close(states[real], io["encoder_out_tbc_all_positions"].transpose(0, 1)[real], "encoder_out")

    mlm = F.cross_entropy(output.prediction_logits[masked], io["target"][masked], reduction="sum")
    assert mlm.item() == pytest.approx(losses["mlm_loss"], rel=TOLERANCE)
    nsp = F.binary_cross_entropy_with_logits(output.seq_relationship_logits[:, 0], io["label"].float(), reduction="sum")
    assert nsp.item() == pytest.approx(losses["nsp_loss"], rel=TOLERANCE)
    total = output.loss * losses["sample_size"]
    assert total.item() == pytest.approx(losses["loss"], rel=TOLERANCE)
    total.backward()
    compare_gradients(model, "bert", arrays(golden / BERT, "grads"))


def test_bert_for_masked_words_alone(golden: Path, converted: Callable[[str], Path]):
    model = AutoModelForMaskedLM.from_pretrained(converted(BERT)).eval()
    io = arrays(golden / BERT)
    labels = io["target"].masked_fill(io["target"] == PAD, -100)
    output = model(input_ids=io["src_tokens"], token_type_ids=io["segment"], labels=labels)
    close(output.logits[io["output_mask"]], io["mlm_logits"], "mlm_logits")
    losses = json.loads((golden / BERT / "loss.json").read_text())
    assert output.loss.item() * losses["sample_size"] == pytest.approx(losses["mlm_loss"], rel=TOLERANCE)


def test_the_encoder_tokenizer_makes_the_recorded_segments(golden: Path, converted: Callable[[str], Path]):
    tokenizer = AutoTokenizer.from_pretrained(converted(CLASSIFIER))
    io = arrays(golden / CLASSIFIER)
    pairs = []
    for row in io["src_tokens"].tolist():
        words = " ".join("|" if index == 2 else f"tok{index - 6}" for index in row[1:] if index != PAD)
        pairs.append([part.strip() for part in words.split("|")[:2]])
    batch = tokenizer([a for a, _ in pairs], [b for _, b in pairs], return_tensors="pt", padding=True)
    assert torch.equal(batch["input_ids"], io["src_tokens"])
    assert torch.equal(batch["token_type_ids"], io["segment"])


def test_classifier(golden: Path, converted: Callable[[str], Path]):
    model = AutoModelForSequenceClassification.from_pretrained(converted(CLASSIFIER)).eval()
    assert (model.config.num_labels, model.config.problem_type) == (3, "single_label_classification")
    io, losses = arrays(golden / CLASSIFIER), json.loads((golden / CLASSIFIER / "loss.json").read_text())
    output = model(input_ids=io["src_tokens"], token_type_ids=io["segment"], labels=io["target"])
    close(output.logits, io["logits"], "logits")
    total = output.loss * losses["sample_size"]
    assert total.item() == pytest.approx(losses["loss"], rel=TOLERANCE)
    total.backward()
    compare_gradients(model, "classifier", arrays(golden / CLASSIFIER, "grads"))


@pytest.mark.parametrize(
    ("name", "file", "dictionary"),
    [(TRANSLATION[0], "checkpoint_full_legacy.pt", "dict.txt"), (BERT, "checkpoint_full.pt", "dict.bert.txt")],
)
def test_training_checkpoints(name: str, file: str, dictionary: str, golden: Path, tmp_path: Path):
    """With optimiser state and pickled meters, in the container of 2019 and in today's."""
    convert_fairseq(golden / name / file, golden / dictionary, tmp_path / "model")
    if name == BERT:  # recorded a few updates later than the rest
        assert AutoModelForPreTraining.from_pretrained(tmp_path / "model") is not None
        return
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model").eval()
    io = arrays(golden / name)
    real = io["target"] != PAD
    output = model(input_ids=io["src_tokens"], decoder_input_ids=io["prev_output_tokens"])
    close(output.logits[real], io["logits"][real], "logits")
