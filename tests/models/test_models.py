"""The models: sizes, transformers' interface, generation."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

import macaron  # noqa: F401  (registers the Auto classes)
from macaron.errors import MacaronError
from macaron.models import (
    EncoderConfig,
    EncoderForMaskedLM,
    EncoderForPreTraining,
    EncoderForSequenceClassification,
    EncoderModel,
    TranslationConfig,
    TranslationModel,
    preset,
)
from macaron.models.presets import preset_names, twin
from macaron.models.summary import all_presets, count
from macaron.ode import Scheme

PAD, EOS = 1, 2
SIZES = [
    ("macaron-small-released", 10000, 36_683_776),
    ("transformer-small-released", 10000, 36_665_344),
    ("macaron-base", 37000, 63_102_976),
    ("transformer-base", 37000, 63_084_544),
    ("macaron-big", 37000, 214_286_336),
    ("transformer-big", 37000, 214_249_472),
    ("macaron-bert-base-released", 32768, 110_787_073),
    ("bert-base-released", 32768, 110_777_857),
]


def translation(**changes) -> TranslationModel:
    torch.manual_seed(0)
    config = preset("macaron-tiny", **{"vocab_size": 24, "hidden_size": 32, "intermediate_size": 64, **changes})
    assert isinstance(config, TranslationConfig)
    return TranslationModel(config).eval()


def encoder(cls=EncoderForPreTraining, **changes):
    torch.manual_seed(0)
    config = preset("macaron-bert-tiny", **{"vocab_size": 24, "hidden_size": 32, "intermediate_size": 64, **changes})
    return cls(config).eval()


SOURCE = torch.tensor([[5, 6, 7, 8, EOS], [9, 10, EOS, PAD, PAD], [11, 12, 13, EOS, PAD]])


@pytest.mark.parametrize(("name", "vocabulary", "parameters"), SIZES)
def test_parameters_equal_the_reference(name: str, vocabulary: int, parameters: int):
    assert count(preset(name, vocab_size=vocabulary)) == parameters


def test_twins_of_all_presets_agree_within_half_a_percent():
    differences = [summary.difference for summary in all_presets() if summary.difference is not None]
    assert len(differences) == len([name for name in preset_names() if twin(name)]) > 0
    assert all(abs(difference) <= 0.005 for difference in differences)


def test_presets_as_the_paper_has_them():
    for size, hidden, heads in (("small", 512, 4), ("base", 512, 8), ("big", 1024, 16)):
        for family, inner in (("transformer", (4 * hidden,)), ("macaron", (2 * hidden, 2 * hidden))):
            summary = next(s for s in all_presets() if s.name == f"{family}-{size}")
            assert (summary.hidden_size, summary.heads, summary.inner_widths) == (hidden, heads, inner)
            assert summary.layers == "6+6"
    bert = preset("macaron-bert-base")
    assert (bert.num_hidden_layers, bert.hidden_size, bert.num_attention_heads) == (12, 768, 12)


def test_a_preset_refuses_what_it_does_not_know():
    with pytest.raises(MacaronError, match="nearest: macaron-small"):
        preset("macaron-smal")
    with pytest.raises(MacaronError, match="did you mean 'dropout'"):
        preset("macaron-small", dropot=0.1)


def test_a_config_is_checked_when_made():
    with pytest.raises(MacaronError, match="strang-gfg"):
        TranslationConfig(scheme="strang-gf")
    with pytest.raises(MacaronError, match="not a multiple of num_attention_heads"):
        TranslationConfig(hidden_size=30, num_attention_heads=4)
    with pytest.raises(MacaronError, match="could not see the source"):
        TranslationConfig(decoder_scheme="strang-gfg")
    with pytest.raises(MacaronError, match="which an encoder lacks"):
        EncoderConfig(scheme="strang-gfhg")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("activation", "swish", "no activation 'swish'"),
        ("initializer", "foo", "init must be one of xavier, kaiming"),
        ("dropout", 1.5, "dropout must be between 0 and 1"),
        ("layer_norm_eps", -1.0, "must be positive"),
        ("head_size", -1, "head_size must be at least 1"),
        ("num_attention_heads", 0, "num_attention_heads must be at least 1"),
        ("prologue", "G", "prologue must be a list of sub-steps"),
        ("epilogue", [["G"]], "epilogue must be a list of sub-steps"),
        ("epilogue", [["H", 1]], "which an encoder lacks"),
        ("integrator", "leapfrog", "leapfrog"),
        ("tie_word_embeddings", False, "share one embedding"),
        ("hidden_sise", 3, "did you mean 'hidden_size'"),
        ("decoder_scheme", Scheme.sequence("nof", ("H", 1.0), ("G", 1.0)), "could not see its own words"),
    ],
)
def test_mistakes_in_a_config_are_named(field: str, value: object, message: str):
    with pytest.raises(MacaronError, match=message):
        TranslationConfig(**{field: value})


def test_mistakes_that_show_when_the_model_is_built():
    with pytest.raises(MacaronError, match="3 activations are given"):
        translation(activation=["relu", "gelu", "relu"])
    only_g = Scheme.sequence("g", ("G", 1.0))
    with pytest.raises(MacaronError, match="share one field"):
        translation(scheme=only_g, decoder_scheme="strang3-gfhfg", tying="depth", prologue=[["F", 1.0]])


def test_float64_stays_float64():
    model = translation().double()
    assert model(SOURCE, labels=SOURCE).loss.dtype == torch.float64


def test_labels_in_floating_point_mean_several_labels_at_once():
    model = encoder(EncoderForSequenceClassification)
    labels = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    loss = model(SOURCE, labels=labels).loss
    torch.testing.assert_close(loss, torch.tensor(0.6931472))


def test_an_argument_nobody_knows_is_refused():
    with pytest.raises(TypeError, match="position_ids"):
        encoder()(SOURCE, position_ids=SOURCE)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scheme": "lie-fg", "norm": "post"},
        {"scheme": "sws", "integrator": "midpoint"},
        {"decoder_scheme": "strang3-gfhfg", "tying": "layer"},
        {"tying": "depth", "prologue": [["G", 0.5]], "epilogue": [["F", 1], ["G", 0.5]]},
        {"scheme": Scheme.sequence("own", ("G", 0.25), ("F", 1.0), ("G", 0.75)).to_dict()},
    ],
)
def test_save_and_load_is_bit_for_bit(tmp_path: Path, changes: dict[str, object]):
    model = translation(**changes)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    assert type(loaded) is TranslationModel
    assert loaded.config.to_diff_dict() == model.config.to_diff_dict()
    before, after = model.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    torch.testing.assert_close(model(SOURCE, labels=SOURCE).logits, loaded(SOURCE, labels=SOURCE).logits)
    assert not any("pickle" in path.name or path.suffix in (".bin", ".pt") for path in tmp_path.iterdir())


def test_a_scheme_given_as_a_value_travels_as_data(tmp_path: Path):
    own = Scheme.sequence("own", ("G", 0.3), ("F", 1.0), ("G", 0.7))
    model = TranslationModel(TranslationConfig(vocab_size=24, hidden_size=32, intermediate_size=64, scheme=own))
    model.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["scheme"] == own.to_dict()
    assert AutoConfig.from_pretrained(tmp_path).encoder_scheme_value() == own


@pytest.mark.parametrize(
    "changes", [{}, {"integrator": "heun"}, {"decoder_scheme": "strang3-gfhfg"}, {"tying": "depth"}]
)
@pytest.mark.parametrize("beams", [1, 4])
def test_generate_with_and_without_cache(changes: dict[str, str], beams: int):
    model = translation(**changes)
    model.embedding.tokens.weight.data *= 3  # sharper, so that hypotheses do not tie
    arguments = {"max_new_tokens": 9, "num_beams": beams, "do_sample": False}
    cached = model.generate(SOURCE, **arguments)
    plain = model.generate(SOURCE, use_cache=False, **arguments)
    assert torch.equal(cached, plain)
    assert cached.shape[0] == 3
    assert (cached[:, 0] == model.config.decoder_start_token_id).all()


def test_generate_refuses_other_caches():
    with pytest.raises(ValueError, match="use 'dynamic'"):
        translation().generate(SOURCE, max_new_tokens=3, cache_implementation="static")


def test_greedy_generation_is_the_argmax_of_the_model():
    model = translation()
    ids = torch.full((3, 1), EOS)
    for _ in range(6):
        logits = model(SOURCE, decoder_input_ids=ids).logits[:, -1:]
        logits[..., EOS] = -torch.inf  # as min_new_tokens below does
        ids = torch.cat([ids, logits.argmax(-1)], 1)
    generated = model.generate(SOURCE, max_new_tokens=6, min_new_tokens=6, num_beams=1, do_sample=False)
    assert torch.equal(generated, ids)


@pytest.mark.parametrize("beams", [1, 3])
def test_generate_recognises_padding_without_a_mask(beams: int):
    model = translation()
    arguments = {"max_new_tokens": 6, "num_beams": beams, "do_sample": False}
    masked = model.generate(SOURCE, attention_mask=(SOURCE != PAD).long(), min_new_tokens=6, **arguments)
    assert torch.equal(model.generate(SOURCE, min_new_tokens=6, **arguments), masked)


def test_padding_does_not_matter():
    model = translation().double()
    labels = torch.tensor([[5, 6, EOS], [7, EOS, PAD], [8, 9, EOS]])
    whole = model(SOURCE, labels=labels).logits
    left = torch.tensor([[PAD, PAD, 9, 10, EOS]])
    for source in (SOURCE[1:2, :3], left):
        torch.testing.assert_close(model(source, labels=labels[1:2]).logits[0, :2], whole[1, :2], rtol=1e-9, atol=1e-9)
    masked = model(SOURCE, attention_mask=(SOURCE != PAD).long(), labels=labels).logits
    assert torch.equal(masked, whole)


def test_labels_give_the_mean_over_real_targets():
    model = translation()
    labels = torch.tensor([[5, 6, EOS], [7, EOS, -100], [8, EOS, PAD]])
    output = model(SOURCE, labels=labels)
    log_p = output.logits.log_softmax(-1)
    picked = [-log_p[r, c, labels[r, c]] for r, c in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1)]]
    torch.testing.assert_close(output.loss, torch.stack(picked).mean())
    accumulated = model(SOURCE, labels=labels, num_items_in_batch=14).loss
    torch.testing.assert_close(accumulated, output.loss / 2)


def test_hidden_states_and_attentions():
    model = translation()
    output = model(SOURCE, labels=SOURCE, output_hidden_states=True, output_attentions=True)
    assert len(output.encoder_hidden_states) == len(output.decoder_hidden_states) == 3
    assert [tuple(a.shape) for a in output.cross_attentions] == [(3, 4, 5, 5)] * 2
    plain = model(SOURCE, labels=SOURCE)
    torch.testing.assert_close(output.logits, plain.logits)
    assert isinstance(model(SOURCE, labels=SOURCE, return_dict=False), tuple)


def test_gradient_checkpointing_changes_nothing():
    model = translation().train()
    for module in model.modules():
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.0
    model(SOURCE, labels=SOURCE).loss.backward()
    before = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    model.gradient_checkpointing_enable()
    assert model.encoder.gradient_checkpointing
    model(SOURCE, labels=SOURCE).loss.backward()
    after = [p.grad for p in model.parameters() if p.grad is not None]
    for a, b in zip(after, before, strict=True):
        torch.testing.assert_close(a, b)


def test_resizing_the_vocabulary():
    model = translation()
    model.resize_token_embeddings(30)
    assert model(SOURCE, labels=SOURCE).logits.shape[-1] == 30
    assert model.config.vocab_size == 30


def test_encoder_heads_share_one_folder(tmp_path: Path):
    model = encoder()
    model.save_pretrained(tmp_path)
    pre = AutoModelForPreTraining.from_pretrained(tmp_path).eval()
    masked = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    base = AutoModel.from_pretrained(tmp_path).eval()
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3).eval()
    assert [type(m) for m in (pre, masked, base, classifier)] == [
        EncoderForPreTraining,
        EncoderForMaskedLM,
        EncoderModel,
        EncoderForSequenceClassification,
    ]
    stored = model.state_dict()
    assert all(torch.equal(tensor, stored[key]) for key, tensor in pre.state_dict().items())
    expected = model(SOURCE)
    for actual, wanted in (
        (pre(SOURCE).prediction_logits, expected.prediction_logits),
        (pre(SOURCE).seq_relationship_logits, expected.seq_relationship_logits),
        (masked(SOURCE).logits, expected.prediction_logits),
        (base(SOURCE).last_hidden_state, model.model(SOURCE).last_hidden_state),
    ):
        torch.testing.assert_close(actual, wanted)
    assert classifier(SOURCE).logits.shape == (3, 3)
    assert (classifier(SOURCE).logits == 0).all()  # a new head starts at zero


def test_pre_training_loss_is_the_sum_of_both_means():
    model = encoder()
    labels = torch.full_like(SOURCE, -100)
    labels[0, 1], labels[2, 0] = 6, 11
    following = torch.tensor([1, 0, 1])
    output = model(SOURCE, labels=labels, next_sentence_label=following)
    log_p = output.prediction_logits.log_softmax(-1)
    mlm = -(log_p[0, 1, 6] + log_p[2, 0, 11]) / 2
    z = output.seq_relationship_logits[:, 0]
    nsp = -(torch.stack([z[0], -z[1], z[2]])).sigmoid().log().mean()
    torch.testing.assert_close(output.loss, mlm + nsp)


@pytest.mark.parametrize(
    ("labels", "kind", "given"),
    [
        (3, None, torch.tensor([0, 2, 1])),
        (1, None, torch.tensor([0.5, -1.0, 2.0])),
        (1, "multi_label_classification", torch.tensor([0, 1, 1])),
    ],
)
def test_classification_losses(labels: int, kind: str | None, given: Tensor):
    model = encoder(EncoderForSequenceClassification)
    config = model.config
    config.num_labels, config.problem_type = labels, kind
    model = EncoderForSequenceClassification(config).eval()
    model.classifier.weight.data.normal_()
    output = model(SOURCE, labels=given)
    z = output.logits
    if labels == 3:
        expected = torch.nn.functional.cross_entropy(z, given)
    elif kind is None:
        expected = (z[:, 0] - given).square().mean()
    else:
        expected = torch.nn.functional.binary_cross_entropy_with_logits(z[:, 0], given.float())
    torch.testing.assert_close(output.loss, expected)


def test_segments_matter_and_default_to_the_first():
    model = encoder()
    first = torch.zeros_like(SOURCE)
    assert torch.equal(model(SOURCE).prediction_logits, model(SOURCE, token_type_ids=first).prediction_logits)
    assert not torch.equal(model(SOURCE).prediction_logits, model(SOURCE, token_type_ids=1 - first).prediction_logits)


IMPORT_ORDERS = {
    "macaron first": "import macaron, sys; assert 'torch' not in sys.modules and 'transformers' not in sys.modules",
    "transformers first": "from transformers import AutoConfig, AutoModelForMaskedLM; import macaron",
    "torch only": "import torch, macaron, sys; assert 'transformers' not in sys.modules",
}


@pytest.mark.parametrize("start", IMPORT_ORDERS.values(), ids=IMPORT_ORDERS.keys())
def test_auto_classes_know_us_whatever_is_imported_first(tmp_path: Path, start: str):
    translation().save_pretrained(tmp_path)
    code = (
        f"{start}\nfrom transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoModelForMaskedLM\n"
        f"assert type(AutoConfig.from_pretrained({str(tmp_path)!r})).__name__ == 'TranslationConfig'\n"
        f"print(type(AutoModelForSeq2SeqLM.from_pretrained({str(tmp_path)!r})).__name__)\n"
        "AutoModelForMaskedLM.from_config(AutoConfig.for_model('macaron-encoder', hidden_size=24, vocab_size=20))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "TranslationModel"
