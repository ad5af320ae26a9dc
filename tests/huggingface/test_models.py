"""Transformers' classes of the models: Auto classes, outputs, losses, generation."""

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
from macaron.huggingface import (
    HFEncoderConfig,
    HFEncoderForMaskedLM,
    HFEncoderForPreTraining,
    HFEncoderForSequenceClassification,
    HFEncoderModel,
    HFTokenizer,
    HFTranslationConfig,
    HFTranslationModel,
)
from macaron.models import (
    EncoderForMaskedLM,
    EncoderForPreTraining,
    EncoderForSequenceClassification,
    EncoderModel,
    TranslationConfig,
    TranslationModel,
    preset,
)
from macaron.ode import Scheme
from macaron.text import MacaronTokenizer

PAD, EOS = 1, 2
GOLDEN = Path(__file__).parent.parent / "golden"


def translation(**changes) -> HFTranslationModel:
    torch.manual_seed(0)
    config = preset("macaron-tiny", **{"vocab_size": 24, "hidden_size": 32, "intermediate_size": 64, **changes})
    assert isinstance(config, TranslationConfig)
    return HFTranslationModel(config).eval()


def encoder(cls=HFEncoderForPreTraining, **changes):
    torch.manual_seed(0)
    config = preset("macaron-bert-tiny", **{"vocab_size": 24, "hidden_size": 32, "intermediate_size": 64, **changes})
    return cls(config).eval()


SOURCE = torch.tensor([[5, 6, 7, 8, EOS], [9, 10, EOS, PAD, PAD], [11, 12, 13, EOS, PAD]])


def test_float64_stays_float64():
    model = translation().double()
    assert model(SOURCE, labels=SOURCE).loss.dtype == torch.float64


def test_labels_in_floating_point_mean_several_labels_at_once():
    model = encoder(HFEncoderForSequenceClassification)
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
    assert type(loaded) is HFTranslationModel
    assert loaded.config.to_diff_dict() == model.config.to_diff_dict()
    before, after = model.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    torch.testing.assert_close(model(SOURCE, labels=SOURCE).logits, loaded(SOURCE, labels=SOURCE).logits)
    assert not any("pickle" in path.name or path.suffix in (".bin", ".pt") for path in tmp_path.iterdir())


def test_a_scheme_given_as_a_value_travels_as_data(tmp_path: Path):
    own = Scheme.sequence("own", ("G", 0.3), ("F", 1.0), ("G", 0.7))
    model = HFTranslationModel(TranslationConfig(vocab_size=24, hidden_size=32, intermediate_size=64, scheme=own))
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
        HFEncoderForPreTraining,
        HFEncoderForMaskedLM,
        HFEncoderModel,
        HFEncoderForSequenceClassification,
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
    model = encoder(HFEncoderForSequenceClassification)
    config = model.config
    config.num_labels, config.problem_type = labels, kind
    model = HFEncoderForSequenceClassification(config).eval()
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
    "torch first": "import torch, macaron, sys; assert 'transformers' not in sys.modules",
    "transformers first": "from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer; import macaron",
    "a model of theirs": "import macaron, sys; from transformers import BertModel",
    "our module": "import sys, macaron.huggingface.models",
}
#: Each order in a process of its own; all but the first are forked from one that has imported torch.
PROGRAM = """
import json, os, sys
orders, *folders = json.loads(sys.argv[1])
for start in orders:
    if not os.fork():
        exec(start)
        from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer
        for folder in folders:
            tokenizer = AutoTokenizer.from_pretrained(folder)
            ids = tokenizer("tok0 tok3")["input_ids"]
            print(type(tokenizer).__name__, tokenizer.kind, tokenizer.fingerprint(), ids)
            print(type(AutoConfig.from_pretrained(folder)).__name__)
        print(type(AutoModelForSeq2SeqLM.from_pretrained(folders[0])).__name__)
        AutoModelForMaskedLM.from_config(AutoConfig.for_model("macaron-encoder", hidden_size=24, vocab_size=20))
        break
    if os.wait()[1]:
        sys.exit(start)
    import scipy.stats, torch._dynamo  # which transformers imports
"""


def test_auto_classes_know_us_whatever_is_imported_first(tmp_path: Path):
    """A model folder and its tokenizer open in a fresh process."""
    expected = []
    for kind, dictionary, config in (
        ("translation", "dict.txt", HFTranslationConfig),
        ("encoder", "dict.bert.txt", HFEncoderConfig),
    ):
        tokenizer = MacaronTokenizer.from_fairseq_dict(GOLDEN / dictionary, kind=kind)
        tokenizer.save_pretrained(tmp_path / kind)
        config(vocab_size=50).save_pretrained(tmp_path / kind)
        ids = HFTokenizer.wrap(tokenizer)("tok0 tok3")["input_ids"]
        expected += [f"MacaronTokenizer {kind} {tokenizer.fingerprint()} {ids}", config.__name__]
    translation(vocab_size=50).save_pretrained(tmp_path / "translation")
    asked = [[*IMPORT_ORDERS.values()], str(tmp_path / "translation"), str(tmp_path / "encoder")]
    command = [sys.executable, "-c", PROGRAM, json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*expected, "HFTranslationModel"] * len(IMPORT_ORDERS)


def test_a_config_is_checked_by_the_dataclass_that_it_wraps():
    with pytest.raises(MacaronError, match="did you mean 'hidden_size'"):
        HFTranslationConfig(hidden_sise=3)
    with pytest.raises(MacaronError, match="not a multiple of num_attention_heads"):
        HFTranslationConfig(hidden_size=30)
    config = HFTranslationConfig(encoder_layers=3)
    assert (config.num_hidden_layers, config.core) == (3, TranslationConfig(encoder_layers=3))
    assert HFTranslationConfig.wrap(config.core).to_dict() == config.to_dict()


def test_translation_folders_are_interchangeable(tmp_path: Path):
    """Ours written by us and by transformers, read by both: the same numbers."""
    plain = TranslationModel(preset("macaron-tiny", vocab_size=24, hidden_size=32)).eval()
    plain.generation_config.num_beams = 3
    plain.save_pretrained(tmp_path / "ours")
    AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    target = torch.cat([torch.full((3, 1), EOS), SOURCE[:, :-1]], 1)
    expected = plain(SOURCE, target)
    for folder in (tmp_path / "ours", tmp_path / "theirs"):
        loaded = TranslationModel.from_pretrained(folder)
        assert torch.equal(loaded(SOURCE, target), expected)
        assert loaded.config == plain.config
        assert loaded.generation_config == plain.generation_config
        hf = AutoModelForSeq2SeqLM.from_pretrained(folder)
        assert isinstance(hf, TranslationModel)
        assert torch.equal(hf(SOURCE, decoder_input_ids=target).logits, expected)
        assert hf.generation_config.num_beams == 3


@pytest.mark.parametrize(
    ("plain_class", "auto_class", "outputs"),
    [
        (EncoderModel, AutoModel, ["last_hidden_state"]),
        (EncoderForMaskedLM, AutoModelForMaskedLM, ["logits"]),
        (EncoderForPreTraining, AutoModelForPreTraining, ["prediction_logits", "seq_relationship_logits"]),
        (EncoderForSequenceClassification, AutoModelForSequenceClassification, ["logits"]),
    ],
)
def test_encoder_folders_are_interchangeable(tmp_path: Path, plain_class, auto_class, outputs: list[str]):
    labels = {"id2label": {0: "a", 1: "b", 2: "c"}, "problem_type": "single_label_classification"}
    changes = labels if plain_class is EncoderForSequenceClassification else {}
    plain = plain_class(preset("macaron-bert-tiny", vocab_size=24, hidden_size=32, **changes)).eval()
    if changes:
        plain.classifier.weight.data.normal_()
    plain.save_pretrained(tmp_path / "ours")
    auto_class.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    expected = plain(SOURCE)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for folder in (tmp_path / "ours", tmp_path / "theirs"):
        loaded = plain_class.from_pretrained(folder)
        found = loaded(SOURCE)
        found = found if isinstance(found, tuple) else (found,)
        hf = auto_class.from_pretrained(folder)(SOURCE)
        for each, same, name in zip(expected, found, outputs, strict=True):
            assert torch.equal(each, same)
            torch.testing.assert_close(each, hf[name])  # transformers leaves weights where they lie in the file
        if changes:
            assert loaded.config == plain.config
