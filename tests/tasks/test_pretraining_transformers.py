"""A pre-trained folder in other hands: transformers' own Trainer fine-tunes it, and goes on with masked words."""

import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

from macaron.data.prepare import prepare
from macaron.recipe import data_recipe, recipe_from
from macaron.tasks.run import run

pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

GOOD, BAD = ["fine", "lovely", "bright"], ["awful", "dull", "grim"]


def sentence(good: bool, draw: random.Random) -> str:
    words = [draw.choice(["the", "a", "this"]), draw.choice(["film", "book", "day"]), "was"]
    return " ".join([*words, draw.choice(GOOD if good else BAD)]) + "."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder, pre-trained by the real thing for a few updates."""
    place, draw = tmp_path_factory.mktemp("pretrained"), random.Random(1)
    documents = [[sentence(number % 2 == 0, draw) for _ in range(6)] for number in range(60)]
    paragraphs = [" ".join(line.capitalize() for line in lines) for lines in documents]
    (place / "text.txt").write_text("\n\n".join(paragraphs) + "\n")
    data = {"kind": "text", "out": str(place / "prepared"), "root": str(place), "train": [{"path": "text.txt"}]}
    prepare(data_recipe({"data": {**data, "vocab_size": 300, "valid_every": 10}}), workers=1)
    small = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "num_hidden_layers": 1}
    train = {"batch_tokens": 512, "row_tokens": 32, "max_updates": 30, "learning_rate": 3e-3, "warmup": 5}
    content = {
        "data": {"out": str(place / "prepared")},
        "model": {"preset": "macaron-bert-tiny", **small},
        "train": {**train, "device": "cpu"},
    }
    run(recipe_from(content, "recipe"), place / "run", resume=False)
    return place / "run" / "model"


def arguments(out: Path, **changes: object) -> TrainingArguments:
    settings = {"per_device_train_batch_size": 16, "learning_rate": 3e-3, "report_to": [], "use_cpu": True}
    return TrainingArguments(
        **{**settings, "output_dir": str(out), "save_strategy": "no", "disable_tqdm": True, "seed": 1, **changes}
    )


def test_fine_tuning_with_the_trainer(folder: Path, tmp_path: Path):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    draw = random.Random(2)
    labels = [number % 2 for number in range(96)]
    examples = [{**tokenizer(sentence(label == 1, draw)), "labels": label} for label in labels]
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    trainer = Trainer(
        model=model,
        args=arguments(tmp_path, num_train_epochs=15),
        train_dataset=examples[:64],
        eval_dataset=examples[64:],
        processing_class=tokenizer,
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
    )
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_loss"] < before["eval_loss"]
    assert after["eval_accuracy"] > 0.9
    trainer.save_model(str(tmp_path / "tuned"))
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "tuned").eval()
    inputs = AutoTokenizer.from_pretrained(tmp_path / "tuned")("the film was fine.", return_tensors="pt")
    torch.testing.assert_close(again(**inputs).logits, model.eval()(**inputs).logits)


def test_masked_words_with_the_trainer(folder: Path, tmp_path: Path):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    draw = random.Random(3)
    examples = [tokenizer(sentence(number % 2 == 1, draw)) for number in range(64)]
    trainer = Trainer(
        model=AutoModelForMaskedLM.from_pretrained(folder),
        args=arguments(tmp_path, num_train_epochs=3),
        train_dataset=examples,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
    )
    first = trainer.train().training_loss
    assert trainer.train().training_loss < first
