"""Configurations and plain networks: sizes, presets, what a mistake is answered with, saving and loading."""

import json
import math
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
import torch

from macaron.errors import MacaronError
from macaron.models import EncoderConfig, EncoderForPreTraining, TranslationConfig, TranslationModel, preset
from macaron.models.configuration import GenerationSettings
from macaron.models.presets import preset_names, twin
from macaron.models.summary import all_presets, count
from macaron.ode import Scheme

PAD, EOS = 1, 2
SOURCE = torch.tensor([[5, 6, 7, 8, EOS], [9, 10, EOS, PAD, PAD], [11, 12, 13, EOS, PAD]])
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


@pytest.mark.parametrize(("name", "vocabulary", "parameters"), SIZES)
def test_parameters_equal_the_reference(name: str, vocabulary: int, parameters: int):
    assert count(preset(name, vocab_size=vocabulary)) == parameters


def test_twins_of_all_presets_agree_within_half_a_percent():
    differences = [summary["difference"] for summary in all_presets() if summary["difference"] is not None]
    assert len(differences) == len([name for name in preset_names() if twin(name)]) > 0
    assert all(abs(difference) <= 0.005 for difference in differences)


def test_presets_as_the_paper_has_them():
    for size, hidden, heads in (("small", 512, 4), ("base", 512, 8), ("big", 1024, 16)):
        for family, inner in (("transformer", (4 * hidden,)), ("macaron", (2 * hidden, 2 * hidden))):
            summary = next(s for s in all_presets() if s["name"] == f"{family}-{size}")
            assert (summary["hidden_size"], summary["heads"], summary["inner_widths"]) == (hidden, heads, inner)
            assert summary["layers"] == "6+6"
    bert = preset("macaron-bert-base")
    assert (bert.num_hidden_layers, bert.hidden_size, bert.num_attention_heads) == (12, 768, 12)


def test_the_other_systems_of_the_papers_tables():
    sizes = {summary["name"]: summary for summary in all_presets()}
    for name in ("weighted-transformer", "relative"):
        assert sizes[name]["parameters"] == pytest.approx(sizes["transformer-big"]["parameters"], rel=0.005)
    assert sizes["weighted-transformer"]["inner_widths"] == (4096 // 16,)
    assert sizes["universal"]["parameters"] < 0.25 * sizes["transformer-big"]["parameters"]
    weighted, relative, universal = (preset(name) for name in ("weighted-transformer", "relative", "universal"))
    decoder = weighted.decoder_layer_settings()
    kinds = [weighted.interaction("F").kind, decoder.interaction("F").kind, decoder.interaction("H").kind]
    assert kinds == ["weighted", "softmax", "weighted"]
    assert (weighted.encoder_scheme_value().operators, weighted.decoder_scheme_value().operators) == (
        ("F",),
        ("F", "H"),
    )
    for config in (relative, relative.decoder_layer_settings()):
        seen = config.interaction("F")
        assert (seen.positions, seen.clip, config.positions_at) == ("relative", 16, "none")
    assert (universal.tying, universal.positions_at, universal.intermediate_size) == ("depth", "layers", 4096)
    convolutions = preset("dynamic-conv")
    assert (sizes["dynamic-conv"]["layers"], sizes["dynamic-conv"]["inner_widths"]) == ("7+6", (4096,))
    assert [convolutions.interaction("F").kernel(layer) for layer in range(6)] == [3, 7, 15, 31, 31, 31]


def test_a_preset_of_another_inner_size_has_that_size():
    for name in preset_names():
        small = preset(name, hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=100)
        assert small.inner_sizes is None
        assert count(small) < 1_500_000


def test_a_preset_refuses_what_it_does_not_know():
    with pytest.raises(MacaronError, match="did you mean 'macaron-small"):
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
        ("initializer", "foo", "initializer must be one of 'xavier', 'kaiming'"),
        ("dropout", 1.5, "dropout must be at most 1, not 1.5"),
        ("layer_norm_eps", -1.0, "layer_norm_eps must be at least 1e-30"),
        ("head_size", -1, "head_size must be at least 1"),
        ("num_attention_heads", 0, "num_attention_heads must be at least 1"),
        ("prologue", "G", "prologue must be a list of sub-steps"),
        ("prologue", [["G", 1e308]], "prologue: the coefficient must be a finite number of at most"),
        ("epilogue", [["G"]], "epilogue must be a list of sub-steps"),
        ("epilogue", [["H", 1]], "which an encoder lacks"),
        ("integrator", "leapfrog", "leapfrog"),
        ("tie_word_embeddings", False, "share one embedding"),
        ("hidden_sise", 3, "did you mean 'hidden_size'"),
        ("hidden_size", "512", "hidden_size must be a whole number, not '512'"),
        ("vocab_size", True, "vocab_size must be a whole number"),
        ("inner_sizes", [3, "4"], r"inner_sizes\[1\] must be a whole number"),
        ("norm_affine", "yes", "norm_affine must be true or false"),
        ("encoder_layers", 100_000, "encoder_layers must be at most 1,000, not 100000"),
        ("head_size", 10**6, "head_size must be at most 4,096"),
        ("vocab_size", 10**9, "vocab_size must be at most 1,000,000"),
        ("inner_sizes", [10**9, 1], "inner_sizes.0. must be at most"),
        ("prologue", [["G", 0.5]] * 1001, "sub-steps in prologue must be at most 1,000"),
        ("layer_norm_eps", math.nan, "layer_norm_eps must be at least 1e-30"),
        ("pad_token_id", -1, "pad_token_id must be from 0 to vocab_size - 1 = 9999, not -1"),
        ("eos_token_id", [2, 10_000], "eos_token_id must be from 0 to vocab_size - 1 = 9999, not 10000"),
        ("decoder_start_token_id", 10**6, "decoder_start_token_id must be from 0"),
        ("evaluation", {"lower": "no"}, "evaluation.lower must be true or false"),
        ("decoder_scheme", Scheme.sequence("nof", ("H", 1.0), ("G", 1.0)), "could not see its own words"),
    ],
)
def test_mistakes_in_a_config_are_named(field: str, value: object, message: str):
    with pytest.raises(MacaronError, match=message):
        TranslationConfig.from_dict({field: value})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("id2label", {"0": "a", "2": "b"}, "id2label must have the keys 0 to 1"),
        ("id2label", {"zero": "a"}, "id2label must have the keys 0 to 0"),
        ("id2label", {"0": 1}, "id2label.0 must be a string"),
        ("id2label", {}, "labels in id2label must be at least 1"),
        ("problem_type", "guess", "problem_type must be one of 'regression'"),
        ("classification", {"max_length": 10**9, "task": "rte"}, "classification.max_length must be at most 100,000"),
        ("classification", {"texts": 3}, "classification.texts must be at most 2"),
        ("classification", {"texts": 2, "columns": ["a"]}, "classification.columns must have as many names"),
        ("first_segment", 2, "first_segment must be at most 1"),
    ],
)
def test_mistakes_in_a_classifier_are_named(field: str, value: object, message: str):
    with pytest.raises(MacaronError, match=message):
        EncoderConfig.from_dict({field: value})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_beams", "5", "num_beams must be a whole number, not '5'"),
        ("num_beams", 100_000, "num_beams must be at most 1,024"),
        ("max_length", 10**9, "max_length must be at most 100,000"),
        ("length_penalty", [1.0], "length_penalty must be a number"),
        ("suppress_tokens", [1, "x"], r"suppress_tokens\[1\] must be a whole number"),
    ],
)
def test_mistakes_in_generation_settings_are_named(field: str, value: object, message: str):
    with pytest.raises(MacaronError, match=message):
        GenerationSettings.from_dict({field: value, "transformers_version": "5"})


def test_mistakes_that_show_when_the_model_is_built():
    with pytest.raises(MacaronError, match="3 activations are given"):
        translation(activation=["relu", "gelu", "relu"])
    only_g = Scheme.sequence("g", ("G", 1.0))
    with pytest.raises(MacaronError, match="share one field"):
        translation(scheme=only_g, decoder_scheme="strang3-gfhfg", tying="depth", prologue=[["F", 1.0]])


def test_a_config_is_frozen_and_survives_json():
    config = preset("macaron-bert-tiny", id2label={0: "no", 1: "yes", 2: "maybe"}, activation=["relu", "gelu"])
    again = EncoderConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert (again.num_labels, again.label_names) == (3, ("no", "yes", "maybe"))
    with pytest.raises(FrozenInstanceError):
        config.hidden_size = 3
    assert replace(config, hidden_size=64).hidden_size == 64
    with pytest.raises(MacaronError, match="not a multiple"):
        replace(config, hidden_size=63)


def test_what_transformers_writes_is_ignored():
    theirs = {"transformers_version": "5.22.2", "dtype": "float32", "architectures": ["X"], "_name_or_path": "y"}
    config = preset("macaron-tiny")
    assert TranslationConfig.from_dict({**config.to_dict(), **theirs}) == config


def test_configurations_and_presets_need_no_torch():
    code = (
        "import sys; from macaron.models.presets import preset; from macaron.errors import MacaronError\n"
        "try: preset('macaron-tiny', hidden_sise=3)\nexcept MacaronError as error: print(error)\n"
        "assert not {'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "did you mean 'hidden_size'" in done.stdout


@pytest.mark.parametrize("model", [translation, lambda: EncoderForPreTraining(preset("bert-tiny", vocab_size=24))])
def test_a_plain_network_is_saved_and_loaded(tmp_path: Path, model):
    made = model().eval()
    made.save_pretrained(tmp_path)
    loaded = type(made).from_pretrained(tmp_path)
    assert loaded.config == made.config
    assert not loaded.training
    before, after = made.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert all(parameter.requires_grad for parameter in loaded.parameters())


def test_half_precision_is_loaded_as_it_was_saved(tmp_path: Path):
    translation().bfloat16().save_pretrained(tmp_path)
    assert {p.dtype for p in TranslationModel.from_pretrained(tmp_path).parameters()} == {torch.bfloat16}
