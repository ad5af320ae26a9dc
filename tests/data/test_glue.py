"""GLUE's files with all their oddities, and everything that can be wrong with them."""

import lzma
from pathlib import Path

import pytest

from macaron.data.glue import TASKS, USUAL, read_dev, read_test, read_train, task_folder, task_named
from macaron.errors import MacaronError

STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
    "\tsentence1\tsentence2\tlabel1\tgold_label\n"
)


def write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_cola_has_no_header_but_its_test_file_has(tmp_path: Path):
    write(tmp_path, "CoLA/train.tsv", 'gj04\t1\t\tThe book was "read.\ngj04\t0\t*\tBook the read was.\n')
    write(tmp_path, "CoLA/test.tsv", "index\tsentence\n0\tIt rained.\n")
    train = read_train(tmp_path, TASKS["cola"])
    assert (train.texts, train.values, train.lines) == (
        (['The book was "read.', "Book the read was."],),
        [1.0, 0.0],
        [1, 2],
    )
    test = read_test(tmp_path, TASKS["cola"], TASKS["cola"].submission[0])
    assert test is not None
    assert (test.texts, test.values) == ((["It rained."],), [])


def test_a_byte_order_mark_windows_line_ends_and_quotes(tmp_path: Path):
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    write(tmp_path, "MRPC/dev.tsv", header + '1\t2\t3\tHe said " yes .\t" Yes , " he said .\r\n')
    dev = read_dev(tmp_path, TASKS["mrpc"])["dev"]
    assert dev.texts == (['He said " yes .'], ['" Yes , " he said .'])
    assert dev.lines == [2]


def test_qqp_lines_that_a_text_has_torn_are_skipped_and_counted(tmp_path: Path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    rows = [f'{i}\t1\t2\t"Why ""{i}""?\tWhat is {i}?\t{i % 2}\n' for i in range(300)]
    write(tmp_path, "QQP/train.tsv", header + "".join(rows[:50]) + "7\t1\t2\tHow\n" + "".join(rows[50:]))
    train = read_train(tmp_path, TASKS["qqp"])
    assert (len(train), train.skipped, train.lines[50]) == (300, 1, 53)
    assert train.texts[0][3] == '"Why ""3""?'
    write(tmp_path, "QQP/train.tsv", header + "".join(rows[:50]) + "7\t1\t2\tHow\n" * 3)
    with pytest.raises(MacaronError, match=r"train\.tsv, line 52, and 2 more of 53: not the columns"):
        read_train(tmp_path, TASKS["qqp"])
    write(tmp_path, "QQP/test.tsv", "id\tquestion1\tquestion2\n0\ta\tb\n1\ta\n")
    with pytest.raises(MacaronError, match=r"test\.tsv, line 3: 2 column"):  # the submission has a row for every line
        read_test(tmp_path, TASKS["qqp"], TASKS["qqp"].submission[0])


def test_mnli_has_two_development_sets_three_files_to_submit_and_its_own_label_order(tmp_path: Path):
    row = "{0}\tp\tp\tg\t( a )\t( b )\t(a)\t(b)\tpremise {0}\thypothesis {0}\tneutral\t{1}\n"
    labels = ("neutral", "entailment", "contradiction", "-")
    for name in ("train", "dev_matched", "dev_mismatched"):
        rows = [row.format(i, label) for i, label in enumerate(labels)]
        write(tmp_path, f"MNLI/{name}.tsv", MNLI + "".join(rows))
    train, dev = read_train(tmp_path, TASKS["mnli"]), read_dev(tmp_path, TASKS["mnli"])
    assert (train.values, train.skipped) == ([0.0, 1.0, 2.0], 1)
    assert train.texts[1] == ["hypothesis 0", "hypothesis 1", "hypothesis 2"]
    assert list(dev) == ["m", "mm"]
    write(tmp_path, "diagnostic/diagnostic.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n")
    found = {s.name: read_test(tmp_path, TASKS["mnli"], s) for s in TASKS["mnli"].submission}
    assert found["AX.tsv"] is not None
    assert found["AX.tsv"].texts == (["a"], ["b"])
    assert found["MNLI-m.tsv"] is found["MNLI-mm.tsv"] is None


def test_compressed_files_and_other_names_of_folders(tmp_path: Path):
    (tmp_path / "sts-b").mkdir()
    with lzma.open(tmp_path / "sts-b" / "train.tsv.xz", "wt") as file:
        file.write(STSB + "0\tg\tf\ty\t0\tn\tn\ta\tb\t3.800\n")
    assert read_train(tmp_path, TASKS["stsb"]).values == [3.8]
    (tmp_path / "SST2").mkdir()
    assert task_folder(tmp_path, TASKS["sst2"]) == tmp_path / "SST2"
    assert task_named(" STS-B ") is task_named("sts_b") is TASKS["stsb"]


@pytest.mark.parametrize(
    ("task", "text", "words"),
    [
        ("cola", "gj04\t1\tThe book.\n", r"train\.tsv, line 1: 3 column\(s\) where 4"),
        (
            "cola",
            "gj04\t1\t\tA.\ngj04\t2\t\tB.\n",
            r"train\.tsv, line 2: the label '2' is not among the classes: 0, 1",
        ),
        ("cola", "", r"train\.tsv: no examples"),
        ("sst2", "sentence,label\nfine,1\n", r"train\.tsv, line 1: no column 'sentence'.*tabs"),
        ("sst2", "sentence\tlabel\nfine\t1\t0\n", r"train\.tsv, line 2: 3 column\(s\) where 2"),
        ("sst2", "sentence\tlabel\n", r"train\.tsv: no examples"),
        ("stsb", STSB + "0\tg\tf\ty\t0\tn\tn\ta\tb\t5.1\n", r"line 2: the score '5.1' is not a number from 0 to 5"),
        ("stsb", STSB + "0\tg\tf\ty\t0\tn\tn\ta\tb\tnan\n", r"line 2: the score 'nan'"),
        ("stsb", STSB + "0\tg\tf\ty\t0\tn\tn\ta\tb\n", r"line 2: 9 column\(s\) where 10"),
        (
            "rte",
            "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tneutral\n",
            "line 2: the label 'neutral' is not among the classes",
        ),
        ("mnli", MNLI.replace("gold_label", "gold"), "line 1: no column 'gold_label'"),
    ],
)
def test_malformed_files_are_named_with_the_line(task: str, text: str, words: str, tmp_path: Path):
    write(tmp_path, f"{TASKS[task].folders[0]}/train.tsv", text)
    with pytest.raises(MacaronError, match=words):
        read_train(tmp_path, TASKS[task])


def test_bytes_that_are_no_text(tmp_path: Path):
    path = write(tmp_path, "SST-2/train.tsv", "")
    path.write_bytes(b"sentence\tlabel\nfine\t1\n\xff\t0\n")
    with pytest.raises(MacaronError, match=r"train\.tsv, line 3: not valid UTF-8"):
        read_train(tmp_path, TASKS["sst2"])


def test_missing_folders_and_files(tmp_path: Path):
    with pytest.raises(MacaronError, match="nowhere: no such folder"):
        read_train(tmp_path / "nowhere", TASKS["cola"])
    with pytest.raises(MacaronError, match="no folder 'QQP' for the task qqp"):
        read_train(tmp_path, TASKS["qqp"])
    write(tmp_path, "MNLI/dev_matched.tsv", MNLI + "0\tp\tp\tg\tx\tx\tx\tx\ta\tb\tneutral\tneutral\n")
    with pytest.raises(MacaronError, match=r"MNLI/dev_mismatched\.tsv: no such file"):
        read_dev(tmp_path, TASKS["mnli"])
    with pytest.raises(MacaronError, match="no GLUE task 'squad'"):
        task_named("squad")


def test_the_fingerprint_knows_texts_and_labels(tmp_path: Path):
    texts = ("sentence\tlabel\na\t1\nb\t0\n", "sentence\tlabel\na\t1\nb\t1\n", "sentence\tlabel\na\t1\nc\t0\n")
    prints = set()
    for text in texts:
        write(tmp_path, "SST-2/train.tsv", text)
        prints.add(read_train(tmp_path, TASKS["sst2"]).fingerprint())
    assert len(prints) == 3


@pytest.mark.parametrize(
    ("task", "train", "dev", "test"),
    [
        ("cola", 8551, 1043, 1063),
        ("sst2", 67349, 872, 1821),
        ("mrpc", 3668, 408, 1725),
        ("stsb", 5749, 1500, 1379),
        ("rte", 2490, 277, 3000),
        ("wnli", 635, 71, 146),
        ("qnli", None, 5463, 5463),
    ],
)
def test_the_official_files(task: str, train: int | None, dev: int, test: int, shared: Path):
    root, found = shared / "data" / "glue", TASKS[task]
    if train is not None:
        assert len(read_train(root, found)) == train
    assert len(read_dev(root, found)["dev"]) == dev
    examples = read_test(root, found, found.submission[0])
    assert examples is not None
    assert len(examples) == test == found.submission[0].rows


def test_the_table_of_tasks():
    assert USUAL == ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
    assert {name for name, task in TASKS.items() if task.one_logit} == {"cola", "mrpc", "qqp"}
    assert {name for name, task in TASKS.items() if task.symmetric} == {"mrpc", "stsb", "qqp"}
    assert TASKS["rte"].labels == TASKS["qnli"].labels == ("not_entailment", "entailment")
    assert {name for name, task in TASKS.items() if task.texts == 1} == {"cola", "sst2"}
    # The metrics that GLUE's leaderboard has, and which text comes first: no other test sees them swapped.
    assert {name: task.metrics for name, task in TASKS.items() if task.metrics != ("accuracy",)} == {
        "cola": ("matthews",),
        "mrpc": ("f1", "accuracy"),
        "stsb": ("pearson", "spearman"),
        "qqp": ("f1", "accuracy"),
    }
    assert TASKS["qnli"].columns == ("question", "sentence", "label")
    assert TASKS["qqp"].columns == ("question1", "question2", "is_duplicate")
    assert all(task_named(task.title) is task for task in TASKS.values())
