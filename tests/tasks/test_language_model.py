"""Training language models: what is predicted from what, and through the real commands."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from macaron.data.pretraining_texts import Corpus
from macaron.models import LanguageModel, preset
from macaron.recipe import recipe_from
from macaron.tasks.language_model import SPANS, LanguageLoss, LanguageModelTask, collate, plan
from macaron.tasks.pretraining_batches import Shape
from macaron.train.settings import TrainSettings

EOS, PAD = 2, 1
WORDS = 40


def corpus_of(*documents: list[list[int]]) -> tuple[np.ndarray, Corpus]:
    """Flat ids, and documents that are lists of sentences."""
    sentences = [sentence for document in documents for sentence in document]
    offsets = np.cumsum([0, *map(len, sentences)]).astype(np.int64)
    starts = np.cumsum([0, *map(len, documents)]).astype(np.int64)
    return np.concatenate(sentences).astype(np.uint16), Corpus(offsets, starts)


def random_corpus(seed: int, documents: int = 30) -> tuple[np.ndarray, Corpus]:
    draw = np.random.default_rng(seed)
    made = [
        [draw.integers(6, 6 + WORDS, draw.integers(1, 9)).tolist() for _ in range(draw.integers(1, 9))]
        for _ in range(documents)
    ]
    return corpus_of(*made)


@pytest.mark.parametrize("width", [9, 16, 200])
def test_every_token_and_every_end_is_a_target_once_after_what_precedes_it(width: int):
    ids, corpus = random_corpus(1)
    edges = corpus.offsets[corpus.documents].tolist()
    train = TrainSettings(max_updates=1, row_tokens=width, batch_tokens=4 * width)
    shape = Shape.of(train, SPANS, corpus)
    made = plan(corpus, shape, width, (3, 1))
    pairs = []
    for index in range(len(made.tokens)):
        batch = collate(ids, corpus, made, index, shape)
        assert batch.ids.shape == (shape.rows, width)
        real = batch.targets != PAD
        assert int(real.sum()) == made.tokens[index]
        pairs += list(zip(batch.ids[real].tolist(), batch.targets[real].tolist(), strict=True))
        for row in range(shape.rows):
            for number in range(1, int(batch.text[row].max()) + 1):
                inside = batch.text[row] == number
                assert batch.positions[row][inside].tolist() == list(range(2, 2 + int(inside.sum())))
                # Within a text the target is the next input.
                assert batch.ids[row][inside][1:].tolist() == batch.targets[row][inside][:-1].tolist()
    wanted = []
    for begin, end in itertools.pairwise(edges):
        document = [EOS, *ids[begin:end].tolist(), EOS]
        wanted += list(itertools.pairwise(document))
    assert sorted(pairs) == sorted(wanted)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention": "rotary", "positions_at": "none", "activation": "swiglu"},
        {"attention": "relative"},
        {"attention": "dynamic", "positions_at": "none"},
        {"positions_at": "layers", "tying": "depth", "output_bias": True},
    ],
)
def test_packed_rows_are_the_texts_one_by_one_and_parts_are_the_whole(changes: dict[str, object]):
    torch.manual_seed(0)
    ids, corpus = random_corpus(2)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64}
    model = LanguageModel(preset("macaron-gpt-tiny", **sizes, dropout=0.0, **changes))
    model.eval()
    train = TrainSettings(max_updates=1, row_tokens=24, batch_tokens=96)
    shape = Shape.of(train, SPANS, corpus)
    made = plan(corpus, shape, 24, (1, 1))
    batch = collate(ids, corpus, made, 0, shape)
    loss = LanguageLoss(model.requires_grad_(False))
    total = 0.0
    for row in range(shape.rows):
        for number in range(1, int(batch.text[row].max()) + 1):
            inside = batch.text[row] == number
            chances = model(batch.ids[row][inside][None]).log_softmax(-1)[0]
            goals = batch.targets[row][inside]
            total -= float(chances[goals != PAD].gather(-1, goals[goals != PAD][:, None]).sum())
    assert float(loss(batch)) == pytest.approx(total, rel=1e-5)
    parts = [LanguageModelTask.cut(None, batch, start, start + 2) for start in (0, 2)]
    assert float(sum(loss(part) for part in parts)) == pytest.approx(total, rel=1e-5)
    assert parts[1].starts.max() == 2 * 24


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents that count: a number word is always followed by the next one."""
    from macaron.data.prepare import prepare
    from macaron.recipe import data_recipe

    folder = tmp_path_factory.mktemp("documents")
    names = [f"n{number}" for number in range(12)]
    draw = np.random.default_rng(0)
    documents = []
    for _ in range(300):
        start = int(draw.integers(0, 12))
        words = [names[(start + step) % 12] for step in range(int(draw.integers(4, 30)))]
        documents.append(" ".join(words) + ".")
    (folder / "numbers.txt").write_text("\n\n".join(documents) + "\n")
    settings = {"kind": "text", "out": str(folder / "data"), "vocab_size": 300, "valid_every": 10}
    prepare(data_recipe({"data": {**settings, "train": [{"path": str(folder / "numbers.txt")}]}}))
    return folder / "data"


SETTINGS = {
    "model": {"hidden_size": 32, "intermediate_size": 64, "dropout": 0, "attention_dropout": 0},
    "train": {"batch_tokens": 512, "row_tokens": 64, "learning_rate": 0.004, "warmup": 10, "schedule": "constant"},
}


def train_run(macaron, data: Path, out: Path, *more: object):
    recipe = out.parent / "recipe.toml"
    recipe.write_text(
        f'[data]\nout = "{data}"\n[model]\npreset = "macaron-gpt-tiny"\n[train]\ntask = "language-model"\n'
    )
    every = {f"{name}_every": 20 for name in ("validate", "checkpoint", "log")}
    settings = {"model": SETTINGS["model"], "train": SETTINGS["train"] | every}
    named = [f"{section}.{key}={value}" for section, values in settings.items() for key, value in values.items()]
    return macaron("train", recipe, "--out", out, *(part for each in named for part in ("--set", each)), *more)


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory, macaron) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    done = train_run(macaron, data, out, "--set", "train.max_updates=160")
    assert done.returncode == 0, done.stderr
    return out


def test_training_learns_resumes_exactly_and_reports(data: Path, run: Path, tmp_path: Path, macaron):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["valid_loss"] for line in lines if "valid_loss" in line]
    assert losses[-1] < 0.5 * losses[0]
    last = next(line for line in reversed(lines) if "valid_perplexity" in line)
    assert last["valid_perplexity"] == pytest.approx(math.exp(last["valid_loss"]))
    stored = (run / "recipe.toml").read_text()
    assert 'task = "language-model"' in stored
    assert "[pretrain]" not in stored
    assert "A language model: macaron-gpt-tiny" in (run / "report.html").read_text()
    # Stopped and resumed, it is the same model.
    assert train_run(macaron, data, tmp_path / "half", "--set", "train.max_updates=80").returncode == 0
    again = macaron("train", "--resume", "--out", tmp_path / "half", "--set", "train.max_updates=160")
    assert again.returncode == 0, again.stderr
    whole, resumed = (LanguageModel.from_pretrained(each / "model").state_dict() for each in (run, tmp_path / "half"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_run_starts_from_a_language_model(data: Path, run: Path, tmp_path: Path, macaron):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'[data]\nout = "{data}"\n[train]\ntask = "language-model"\nmax_updates = 1\nrow_tokens = 64\n')
    done = macaron("train", recipe, "--from", run, "--out", tmp_path / "more")
    assert done.returncode == 0, done.stderr
    assert "starts from" in done.stderr
    lines = [json.loads(line) for line in (tmp_path / "more" / "metrics.jsonl").read_text().splitlines()]
    assert next(line["valid_loss"] for line in lines if "valid_loss" in line) < 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": {"preset": "bert-tiny"}, "train": {"task": "language-model"}}, "does not fit model.preset"),
        ({"train": {"task": "translation"}, "data": {"kind": "text"}}, "translation needs data of kind 'pairs'"),
        ({"model": {"preset": "gpt-tiny"}, "pretrain": {"nsp": False}}, r"\[pretrain\] is for pre-training"),
        ({"model": {"preset": "gpt-tiny"}, "train": {"best_metric": "bleu"}}, "best_metric"),
        ({"train": {"task": "languages"}}, "train.task"),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused(content: dict[str, dict[str, object]], message: str):
    from macaron.errors import MacaronError

    merged = {**content, "data": {"out": "x", **content.get("data", {})}}
    merged["train"] = {"max_updates": 1, **content.get("train", {})}
    with pytest.raises(MacaronError, match=message):
        recipe_from(merged)


def test_the_command_continues_prompts(run: Path, tmp_path: Path, macaron):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("n3 n4\nn10 n11 n0 n1\n\nn5\n")
    done = macaron("generate", run, "--input", prompts, "--max-length", 12)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert lines[0].startswith(" n5 n6")
    assert lines[1].startswith(" n2 n3")
    assert len(lines) == 5
    # A line alone has the same continuation, in any batch.
    prompts.write_text("n10 n11 n0 n1\n")
    assert macaron("generate", run, "--input", prompts, "--max-length", 12).stdout == lines[1] + "\n"
    options = ("--input", prompts, "--sample", "--nbest", 3, "--top-p", 0.9, "--max-length", 20)
    drawn = [macaron("generate", run, *options, "--seed", seed).stdout for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert [line.split("\t")[0] for line in drawn[0].splitlines()] == ["1"] * 3
    refused = macaron("generate", run, "--input", prompts, "--max-length", 5000)
    assert refused.returncode == 1
    assert "line 1: a prompt of" in refused.stderr
    assert "is not a language model" in macaron("generate", "tests/compatibility/fixtures/classifier").stderr


def test_greedy_is_that_of_transformers(run: Path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from macaron import Generator

    prompts = ["n3 n4", "n10 n11 n0 n1 n2", "n7."]
    generator = Generator(run, device="cpu")
    ours = generator.generate_nbest(prompts, max_length=9)
    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    model = AutoModelForCausalLM.from_pretrained(run / "model")
    batch = tokenizer(prompts, padding=True, return_tensors="pt")
    theirs = model.generate(**batch, max_new_tokens=10, do_sample=False)[:, batch["input_ids"].shape[1] :]
    for found, row in zip(ours, theirs.tolist(), strict=True):
        new = list(found[0].tokens)
        assert new[:9] == row[: len(new[:9])]
    # Nearly the same tokens with matrices of 8 bits.
    rounded = Generator(run, int8=True).generate_nbest(prompts, max_length=9)
    assert sum(a[0].tokens == b[0].tokens for a, b in zip(ours, rounded, strict=True)) >= 2
    chances = model(**batch).logits.detach().log_softmax(-1)
    assert ours[0][0].token_scores[0] == pytest.approx(float(chances[0, -1, ours[0][0].tokens[0]]), abs=1e-4)


def test_perplexity_is_that_of_the_documents_one_by_one(data: Path, run: Path, tmp_path: Path, macaron):
    from macaron.data.prepared import PreparedText

    done = macaron("evaluate", run, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    prepared, model = PreparedText.open(data), LanguageModel.from_pretrained(run / "model")
    edges, sentences = prepared.documents("valid").tolist(), prepared.sentences("valid")
    total, tokens, words = 0.0, 0, 0
    lines = []
    for begin, end in itertools.pairwise(edges):
        ids = [EOS, *(int(token) for i in range(begin, end) for token in sentences[i]), EOS]
        with torch.no_grad():
            chances = model(torch.tensor([ids[:-1]])).log_softmax(-1)[0]
        total -= float(chances.gather(-1, torch.tensor(ids[1:])[:, None]).sum())
        tokens += len(ids) - 1
        lines.append(prepared.tokenizer.decode_lines([ids[1:-1]])[0])
        words += len(lines[-1].split()) + 1
    assert found["perplexity_per_token"] == pytest.approx(math.exp(total / tokens), rel=1e-4)
    assert found["perplexity_per_word"] == pytest.approx(math.exp(total / words), rel=1e-4)
    assert found["perplexity_per_token"] < found["perplexity_per_word"]
    # The same documents as plain text; and as WikiText has them.
    (tmp_path / "text.txt").write_text("\n\n".join(lines) + "\n")
    again = json.loads(macaron("evaluate", run, "--source", tmp_path / "text.txt", "--json").stdout)
    assert again["perplexity_per_word"] == pytest.approx(found["perplexity_per_word"], rel=1e-5)
    (tmp_path / "wiki.txt").write_text(" \n = n1 = \n \n n2 n3 \n \n n4 \n \n = = n5 = = \n = n6 = \n n7 \n")
    wiki = json.loads(macaron("evaluate", run, "--source", tmp_path / "wiki.txt", "--headings", "--json").stdout)
    assert (wiki["documents"], wiki["words"]) == (2, 15)
    text = macaron("evaluate", run, "--source", tmp_path / "text.txt").stdout
    assert "perplexity per word" in text
    refused = macaron("evaluate", run, "--source", tmp_path / "text.txt", "--beam", 3)
    assert refused.returncode == 2


def test_long_documents_are_evaluated_in_blocks(run: Path, tmp_path: Path):
    from macaron.evaluate.perplexity import evaluate_language_model
    from macaron.models.load import save_model
    from macaron.text.load_tokenizer import load_tokenizer

    model = LanguageModel.from_pretrained(run / "model")
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"n{i % 12}" for i in range(40)) + "\n")
    short = replace(model.config, max_position_embeddings=16)
    cut = LanguageModel(short)
    weights = {**model.state_dict(), "embedding.positions.weight": model.embedding.positions.weight[:16]}
    cut.load_state_dict(weights)
    tokenizer = load_tokenizer(run / "model", "language")
    save_model(tmp_path / "short", cut, None, tokenizer)
    found = evaluate_language_model(tmp_path / "short", None, "valid", text)
    (ids,) = tokenizer.encode_lines([text.read_text().strip()], add_special_tokens=False)
    whole, nll = torch.tensor([EOS, *ids, EOS]), 0.0
    for start in range(0, len(whole) - 1, 16):
        given, wanted = whole[start : start + 16][: len(whole) - 1 - start], whole[start + 1 : start + 17]
        with torch.no_grad():
            nll += float(F.cross_entropy(cut.eval()(given[None])[0], wanted, reduction="sum"))
    assert found["tokens"] == len(ids)
    assert found["nll"] == pytest.approx(nll, rel=1e-5)


def test_fine_tuning_reads_the_last_token(run: Path, tmp_path: Path, macaron):
    draw = np.random.default_rng(5)
    rows = [(f"n{draw.integers(0, 12)}", f"n{draw.integers(0, 12)}") for _ in range(160)]
    lines = ["text,label", *(f"{a} {b},{'big' if int(a[1:]) > 5 else 'small'}" for a, b in rows)]
    (tmp_path / "examples.csv").write_text("\n".join(lines) + "\n")
    examples = tmp_path / "examples.csv"
    options = ("--train", examples, "--dev", examples, "--epochs", 8, "--learning-rate", 0.01, "--batch-size", 16)
    done = macaron("finetune", run, *options, "--out", tmp_path / "tuned")
    assert done.returncode == 0, done.stderr
    (tmp_path / "lines.txt").write_text("n11 n2\nn1 n9\n")
    found = macaron("predict", tmp_path / "tuned", "--input", tmp_path / "lines.txt")
    assert [line.split("\t")[0] for line in found.stdout.splitlines()] == ["big", "small"]


def test_the_classifier_sees_texts_and_their_ends(run: Path):
    from macaron.tasks.finetune import FineTuner

    tuner = FineTuner(run, "cpu")
    data = tuner.encode([["n1 n2", "n3"], ["n4", "n5 n6 n7"]])
    batch = tuner.batch(data, np.arange(2), 2)
    words = [tuner.tokenizer.encode_lines([text], add_special_tokens=False)[0] for text in ("n1 n2", "n4")]
    assert batch.tokens[0][batch.real[0]].tolist() == [EOS, *words[0], EOS, *words[1], 5]
    features = tuner.model.features(batch.tokens, batch.real)
    alone = tuner.model.model.decode(batch.tokens[:1, : int(batch.real[0].sum())])[0, -1]
    torch.testing.assert_close(features[0], alone, atol=1e-5, rtol=1e-5)


def test_other_commands_take_a_language_model(run: Path, data: Path, tmp_path: Path, macaron):
    drawn = macaron("particles", run, "n1 n2 n3", "--out", tmp_path / "particles.json")
    assert drawn.returncode == 0, drawn.stderr
    parts = json.loads((tmp_path / "particles.json").read_text())
    assert '"decoder"' in json.dumps(parts)
    assert macaron("particles", run, "n1", "--part", "encoder", "--out", tmp_path / "x.json").returncode == 2
    assert train_run(macaron, data, tmp_path / "twin", "--set", "model.scheme=lie-fg", "--set", "train.max_updates=160")
    compared = macaron("compare", run, tmp_path / "twin", "--data", data, "--out", tmp_path / "page.html")
    assert compared.returncode == 0, compared.stderr
    assert "cannot be served" in macaron("serve", run).stderr
    assert "cannot translate" in macaron("translate", run).stderr
