"""``macaron glue``, end to end through the real command, on small files in the official layouts."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from macaron.data.glue import TASKS
from macaron.errors import MacaronError
from macaron.models import LanguageModel, preset
from macaron.tasks.classifier import Predictor
from macaron.tasks.glue.glue_results import GlueResults, averages, table
from macaron.tasks.glue.jobs import FIXED, PAPER, GlueWorker, make_plan
from macaron.text import MacaronTokenizer

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
COMMAND = [sys.executable, "-m", "macaron", "glue"]
WORDS = ["the", "cat", "sat", "on", "mat", "it", "was", "and", "run", "away", "house"]
GRID = ("--grid", "fixed", "--learning-rate", "1e-3", "--batch-size", "16", "--epochs", "2", "--device", "cpu")


def write(path: Path, header: str, rows: list[tuple[object, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(header + "".join("\t".join(map(str, row)) + "\n" for row in rows))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CoLA: is there a good word? RTE: are both texts good? Both have test files, CoLA's complete."""
    root, draw = tmp_path_factory.mktemp("glue"), random.Random(5)

    def text(good: bool) -> str:
        words = [draw.choice(WORDS) for _ in range(5)]
        words[draw.randrange(5)] = "good" if good else "bad"
        return " ".join(words)

    for split, count in (("train", 320), ("dev", 80)):
        labels = [draw.randrange(2) for _ in range(count)]
        write(root / "CoLA" / f"{split}.tsv", "", [("x", y, "" if y else "*", text(bool(y))) for y in labels])
        names = TASKS["rte"].labels
        rows = [(i, text(bool(y)), text(bool(y)), names[y]) for i, y in enumerate(labels)]
        write(root / "RTE" / f"{split}.tsv", "index\tsentence1\tsentence2\tlabel\n", rows)
    write(root / "CoLA" / "test.tsv", "index\tsentence\n", [(i, text(i % 2 == 1)) for i in range(1063)])
    return root


@pytest.fixture(scope="module")
def finished(macaron, encoder_folder: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run") / "run"
    done = macaron("glue", encoder_folder, "--data", data, "--tasks", "cola,rte", "--seeds", 2, *GRID, "--out", run)
    assert done.returncode == 0, done.stderr
    assert "| median of 2 seed(s) |" in done.stdout
    assert "RTE: no test.tsv: its part of the submission is a placeholder" in done.stderr
    return run


def records(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]


def test_easy_tasks_are_learned_and_written_down(finished: Path):
    runs = records(finished)
    assert [each["run"] for each in runs] == [f"{t}-b16-lr0.001-e2-s{s}" for t in ("cola", "rte") for s in (1, 2)]
    assert all(each["score"] > 90 for each in runs if each["task"] == "cola")
    assert [each["objective"] for each in runs] == ["one-logit"] * 2 + ["classes"] * 2
    assert all(len(each["epoch_log"]) == 2 and each["updates"] == 40 for each in runs)
    everything = json.loads((finished / "results.json").read_text())
    assert everything["average"]["median"]["glue"] is None
    assert "qqp" in everything["average"]["median"]["missing"]
    assert everything["tasks"]["cola"]["seeds"] == [1, 2]
    assert (finished / "table.md").read_text().startswith("| ")
    assert not (finished / "candidates").exists()
    usual = everything["tasks"]
    assert usual["cola"]["constant"] == {"dev": {"matthews": 0.0}}
    assert 40 < usual["rte"]["constant"]["dev"]["accuracy"] < 60


def test_predictions_of_each_run_give_its_score(finished: Path, data: Path):
    truth = [line.split("\t")[1] for line in (data / "CoLA" / "dev.tsv").read_text().splitlines()]
    for each in records(finished):
        lines = (finished / "predictions" / "dev" / f"{each['run']}.dev.tsv").read_text().splitlines()
        assert lines[0] == "index\tprediction"
        assert len(lines) == 81
        if each["task"] == "cola":
            right = [line.split("\t")[1] for line in lines[1:]]
            assert (right == truth) == (each["score"] == pytest.approx(100))


def test_the_best_model_is_kept_with_its_labels(finished: Path):
    for task in ("cola", "rte"):
        model = AutoModelForSequenceClassification.from_pretrained(finished / "models" / task)
        assert tuple(model.config.id2label[i] for i in (0, 1)) == TASKS[task].labels
        assert model.config.classification["texts"] == TASKS[task].texts
        best = max((each for each in records(finished) if each["task"] == task), key=lambda each: each["score"])
        assert model.config.classification["dev"] == best["scores"]
    predictor = Predictor(finished / "models" / "cola", "cpu")
    assert [each["label"] for each in predictor.predict([["the good cat sat", "a bad house"]])] == ["1", "0"]


def test_the_submission(macaron, finished: Path):
    assert macaron("glue", "--check", finished / "submission.zip").stdout.endswith("complete and well formed\n")
    with zipfile.ZipFile(finished / "submission.zip") as archive:
        lines = archive.read("CoLA.tsv").decode().splitlines()[1:]
    right = sum(int(line.split("\t")[1]) == i % 2 for i, line in enumerate(lines))
    assert right > 950
    submission = json.loads((finished / "results.json").read_text())["submission"]
    assert submission["problems"] == []
    assert "CoLA.tsv" not in submission["placeholders"]
    assert {"RTE.tsv", "AX.tsv", "WNLI.tsv"} <= set(submission["placeholders"])


def test_finished_runs_are_not_done_again_and_new_ones_are_added(
    macaron, finished: Path, encoder_folder: Path, data: Path, tmp_path: Path
):
    arguments = (encoder_folder, "--data", data, "--tasks", "cola", *GRID, "--out", finished)
    before = records(finished)
    refused = macaron("glue", *arguments, "--seeds", 2)
    assert refused.returncode == 1
    assert "is not empty: continue with --resume" in refused.stderr
    again = macaron("glue", *arguments, "--seeds", 3, "--resume")
    assert again.returncode == 0, again.stderr
    assert "3 runs: cola; 2 finished, 1 to do" in again.stderr
    assert records(finished)[:4] == before
    assert [each["run"] for each in records(finished)[4:]] == ["cola-b16-lr0.001-e2-s3"]
    other = macaron("glue", *arguments, "--resume", "--dropout", "0.2")
    assert other.returncode == 1
    assert "dropout was None, is 0.2" in other.stderr
    changed = tmp_path / "glue"
    shutil.copytree(data, changed)
    with (changed / "CoLA" / "dev.tsv").open("a") as file:
        file.write("x\t1\t\tthe good cat\n")
    other = macaron("glue", *arguments, "--resume", "--data", changed)
    assert other.returncode == 1
    assert "cola-b16-lr0.001-e2-s1 was trained or scored on other data than --data has now" in other.stderr


def test_a_test_set_that_has_changed_is_predicted_again(
    macaron, finished: Path, encoder_folder: Path, data: Path, tmp_path: Path
):
    """Predictions are kept by what they are of, not only by the run that made them."""
    run, files = tmp_path / "run", tmp_path / "glue"
    shutil.copytree(finished, run)
    shutil.copytree(data, files)
    test = files / "CoLA" / "test.tsv"
    lines = test.read_text().splitlines(keepends=True)
    test.write_text("".join(lines[:1] + lines[:0:-1]))  # the sentences in the opposite order
    arguments = (encoder_folder, "--tasks", "cola", "--seeds", 2, *GRID, "--out", run, "--resume")
    kept = (run / "predictions" / "test" / "CoLA.tsv").read_text().splitlines()
    again = macaron("glue", *arguments, "--data", data)
    assert again.returncode == 0, again.stderr
    assert "predicting" not in again.stderr
    stored = run / "predictions" / "test" / "CoLA.tsv"  # one of its answers is damaged
    stored.write_text("\n".join([*kept[:-1], kept[-1][:-1] + str(1 - int(kept[-1][-1])), ""]))
    assert "predicting CoLA.tsv" in macaron("glue", *arguments, "--data", data).stderr
    assert stored.read_text().splitlines() == kept
    again = macaron("glue", *arguments, "--data", files)
    assert "predicting CoLA.tsv: 1,063 examples" in again.stderr
    made = (run / "predictions" / "test" / "CoLA.tsv").read_text().splitlines()
    assert [line.split("\t")[1] for line in made[:0:-1]] == [line.split("\t")[1] for line in kept[1:]] != made[1:]
    # Without its files a finished task keeps its place in the submission.
    (files / "CoLA").rename(files / "elsewhere")
    rte = ("--tasks", "rte", "--seeds", 2, *GRID, "--out", run, "--resume")
    assert macaron("glue", encoder_folder, *rte, "--data", files).returncode == 0
    assert "CoLA.tsv" not in json.loads((run / "results.json").read_text())["submission"]["placeholders"]


@pytest.mark.slow
def test_several_processes_give_the_same_numbers(
    macaron, finished: Path, encoder_folder: Path, data: Path, tmp_path: Path
):
    run = tmp_path / "run"
    arguments = ("--data", data, "--tasks", "cola,rte", "--seeds", 2, *GRID, "--out", run, "--workers", 2)
    done = macaron("glue", encoder_folder, *arguments)
    assert done.returncode == 0, done.stderr
    alone = {each["run"]: each["epoch_log"] for each in records(finished)}
    together = {each["run"]: each["epoch_log"] for each in records(run)}
    assert len(together) == 4
    for name, log in together.items():
        assert [each["loss"] for each in log] == pytest.approx([each["loss"] for each in alone[name]], rel=1e-4)
    assert sorted(path.name for path in (run / "models").iterdir()) == ["cola", "rte"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(
    workers: int, macaron, encoder_folder: Path, data: Path, tmp_path: Path
):
    run = tmp_path / "run"
    arguments = [encoder_folder, "--data", data, "--tasks", "cola", "--seeds", 40, *GRID, "--out", run]
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments), "--workers", str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not (run / "results.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "--resume" in errors
    assert "Traceback" not in errors
    kept = records(run)
    assert 1 <= len(kept) < 40
    if workers == 1:
        done = macaron("glue", *arguments[:6], min(len(kept) + 1, 40), *GRID, "--out", run, "--resume")
        assert done.returncode == 0, done.stderr
        assert records(run)[: len(kept)] == kept


def test_bad_input(macaron, encoder_folder: Path, data: Path, tmp_path: Path):
    ask = (encoder_folder, "--data", data, "--out", tmp_path / "run")
    missing = macaron("glue", *ask, "--tasks", "cola,sst2")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "no folder 'SST-2' for the task sst2" in missing.stderr
    assert not (tmp_path / "run").exists()
    for arguments, code, words in (
        ((*ask, "--tasks", "squad"), 1, "no GLUE task 'squad'"),
        ((*ask, "--tasks", "cola", "--batch-size", "many"), 2, "--batch-size takes a number"),
        ((encoder_folder, "--data", data), 2, "--out RUN"),
        ((tmp_path / "none", *ask[1:], "--tasks", "cola"), 1, "no such folder"),
        (("--check", tmp_path / "none.zip"), 1, "none.zip: No such file"),
    ):
        done = macaron("glue", *arguments)
        assert done.returncode == code, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_the_search_space_of_the_paper():
    plan = make_plan([TASKS["cola"], TASKS["mrpc"]], 2, PAPER, symmetric=True)
    assert len(plan) == len({job.name for job in plan}) == 2 * 12 * 2
    assert {job.settings.symmetric for job in plan if job.task == "cola"} == {False}
    assert {job.settings.symmetric for job in plan if job.task == "mrpc"} == {True}
    (only,) = make_plan([TASKS["cola"]], 1, FIXED, one_logit=False)
    assert (only.name, only.objective.logits) == ("cola-b32-lr5e-05-e3-two-logits-s1", 2)


def run_record(task: str, setting: str, seed: int, value: float, diverged: bool = False) -> dict:
    scores = {name: dict.fromkeys(TASKS[task].metrics, value) for name in TASKS[task].dev}
    name = f"{task}-{setting}-s{seed}"
    return {
        **{"run": name, "task": task, "setting": setting, "seed": seed},
        **{"score": value, "scores": scores, "diverged": diverged},
    }


def test_medians_choose_the_setting_and_the_best_run_the_model(tmp_path: Path):
    results = GlueResults(tmp_path)
    for seed, (a, b) in enumerate([(70.0, 60.0), (72.0, 95.0), (74.0, 50.0)], start=1):
        for setting, value in (("a", a), ("b", b)):
            record = run_record("rte", setting, seed, value)
            results.records[record["run"]] = record
    results.records["x"] = run_record("rte", "c", 1, 99.0, diverged=True)  # one seed only, and no model
    found = results.summary()["rte"]
    assert (found["setting"], found["median"], found["seeds"]) == ("a", {"dev": {"accuracy": 72.0}}, [1, 2, 3])
    assert found["sd"] == {"dev": {"accuracy": 2.0}}
    assert found["score"] == {"median": 72.0, "sd": 2.0, "min": 70.0, "max": 74.0}
    assert found["best_run"]["run"] == "rte-b-s2"
    assert (found["runs"], found["diverged"]) == (7, 1)


def test_only_the_best_model_stays(tmp_path: Path):
    """Of equals the first by name, in whatever order they end; a worse one, and one that diverged, leave nothing."""
    results = GlueResults(tmp_path)
    for setting, value, diverged in (("b", 80.0, False), ("c", 70.0, False), ("a", 80.0, False), ("d", 99.0, True)):
        record = run_record("rte", setting, 1, value, diverged)
        left = tmp_path / "candidates" / record["run"]
        left.mkdir(parents=True)
        (left / "weights").write_text(setting)
        results.add(record)
        assert not left.exists()
        (tmp_path / "models" / "rte" / "README.md").write_text("# A card of my own\n")
    assert (tmp_path / "models" / "rte" / "weights").read_text() == "a"
    assert GlueResults(tmp_path).best("rte")["run"] == "rte-a-s1"
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["rte"]
    assert (tmp_path / "models" / "rte" / "README.md").read_text() == "# A card of my own\n"


def test_a_run_that_equals_the_best_leaves_its_model(encoder_folder: Path, data: Path, tmp_path: Path):
    """It may come first by name; one that is worse need not be written."""
    worker = GlueWorker(encoder_folder, data, tmp_path, "cpu")
    (job,) = make_plan([TASKS["cola"]], 1, {**FIXED, "epochs": (1,)})
    score = worker.work(job, None)["score"]
    model = tmp_path / "candidates" / job.name
    for best, left in ((score, True), (score + 0.1, False)):
        shutil.rmtree(model)
        worker.work(job, {"score": best, "diverged": False})
        assert model.exists() == left


def test_the_table_of_all_tasks(tmp_path: Path):
    results = GlueResults(tmp_path)
    for number, name in enumerate(TASKS):
        record = run_record(name, "a", 1, 80.0 + number)
        results.records[record["run"]] = record
    summary = results.summary()
    text = table(summary, "tiny")
    assert averages(summary)["median"].glue == pytest.approx(84)
    lines = text.splitlines()
    assert lines[0].count("|") == lines[2].count("|") == 12
    assert lines[2] == (
        "| median of 1 seed(s) | 80.0 | 81.0 | 82.0/82.0 | 83.0/83.0 | 84.0/84.0 | 85.0/85.0 | 86.0 | 87.0 | 88.0 "
        "| 84.0 |"
    )


def test_a_damaged_list_of_results_is_named(tmp_path: Path):
    record = {"run": "a", "task": "rte", "setting": "b", "seed": 1, "score": 50.0, "diverged": False}
    whole = json.dumps({**record, "scores": {"dev": {"accuracy": 50.0}}})
    (tmp_path / "results.jsonl").write_text(whole + '\n{"ru\n')
    with pytest.raises(MacaronError, match=r"results\.jsonl, line 2"):
        GlueResults(tmp_path)
    (tmp_path / "results.jsonl").write_text(whole.replace('"score": 50.0', '"score": -Infinity') + "\n")
    with pytest.raises(MacaronError, match=r"results\.jsonl, line 1.*score must be at least -100"):
        GlueResults(tmp_path)


def test_a_language_model_is_fine_tuned_on_its_last_token(macaron, data: Path, tmp_path: Path):
    tokenizer = MacaronTokenizer.train([" ".join([*WORDS, "good", "bad"])] * 20, 330, kind="language")
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128}
    LanguageModel(preset("macaron-gpt-tiny", vocab_size=len(tokenizer), **sizes)).save_pretrained(tmp_path / "gpt")
    tokenizer.save_pretrained(tmp_path / "gpt")
    run = tmp_path / "run"
    done = macaron("glue", tmp_path / "gpt", "--data", data, "--tasks", "cola,rte", "--seeds", 1, *GRID, "--out", run)
    assert done.returncode == 0, done.stderr
    assert next(each["score"] for each in records(run) if each["task"] == "cola") > 80
