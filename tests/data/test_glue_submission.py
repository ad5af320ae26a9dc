"""The zip for GLUE's server, and a validator that finds what the server would refuse."""

import zipfile
from pathlib import Path

import pytest

from macaron.data.glue import (
    LARGEST,
    TASKS,
    as_predictions,
    check_submission,
    expected_files,
    prediction_file,
    write_submission,
)
from macaron.errors import MacaronError


def rewrite(path: Path, changes: dict[str, bytes | None], extra: dict[str, bytes] | None = None) -> Path:
    """A copy with some files changed, or left out (None), or added."""
    copy = path.with_name("changed.zip")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            content = changes.get(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
        for name, content in (extra or {}).items():
            new.writestr(name, content)
    return copy


@pytest.fixture(scope="module")
def submission(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zip") / "submission.zip"
    predictions = {"RTE.tsv": as_predictions(TASKS["rte"], [i % 2 for i in range(3000)])}
    predictions["STS-B.tsv"] = as_predictions(TASKS["stsb"], [i / 200 for i in range(1379)])
    filled = write_submission(path, {name: prediction_file(rows) for name, rows in predictions.items()})
    assert sorted(filled) == sorted(set(expected_files()) - set(predictions))
    return path


def test_all_files_that_the_server_expects(submission: Path):
    assert check_submission(submission) == []
    with zipfile.ZipFile(submission) as archive:
        assert sorted(archive.namelist()) == sorted(
            f"{name}.tsv"
            for name in ("AX", "CoLA", "MNLI-m", "MNLI-mm", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B", "WNLI")
        )
        assert archive.read("RTE.tsv").decode().splitlines()[:3] == [
            "index\tprediction",
            "0\tnot_entailment",
            "1\tentailment",
        ]
        scores = [float(line.split("\t")[1]) for line in archive.read("STS-B.tsv").decode().splitlines()[1:]]
        assert (min(scores), max(scores)) == (0.0, 5.0)  # what lies beyond the range is its end
        assert len(archive.read("QQP.tsv").splitlines()) == 390966
        assert set(archive.read("WNLI.tsv").decode().split()[2:][1::2]) == {"0"}


def test_the_same_predictions_give_the_same_file(submission: Path, tmp_path: Path):
    write_submission(tmp_path / "a.zip", {})
    write_submission(tmp_path / "b.zip", {})
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "b.zip"]


WNLI = "index\tprediction\n" + "".join(f"{i}\t0\n" for i in range(146))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "WNLI.tsv: missing"),
        (WNLI.replace("index\tprediction\n", ""), "WNLI.tsv, line 1: the header"),
        (WNLI.replace("3\t0\n", "3\t2\n", 1), "WNLI.tsv, line 5: the label '2' is not among the classes: 0, 1"),
        (WNLI.replace("3\t0\n", "4\t0\n", 1), r"WNLI.tsv, line 5: '4\t0' is not index 3"),
        (WNLI.replace("3\t0\n", "3,0\n", 1), "WNLI.tsv, line 5: '3,0' is not index 3, a tab, a prediction"),
        (WNLI.replace("145\t0\n", ""), "WNLI.tsv: 145 rows where the test set has 146"),
        (f"{WNLI}146\t0\n", "WNLI.tsv: 147 rows where the test set has 146"),
        ("", "WNLI.tsv, line 1: the header"),
    ],
)
def test_what_is_wrong_is_named(content: str | None, words: str, submission: Path):
    changed = rewrite(submission, {"WNLI.tsv": None if content is None else content.encode()})
    problems = check_submission(changed)
    assert len(problems) == 1
    assert words in problems[0]


def test_files_in_a_folder_and_files_too_many(submission: Path):
    changed = rewrite(submission, {"WNLI.tsv": None}, {"sub/WNLI.tsv": WNLI.encode(), "notes.txt": b"hi"})
    problems = check_submission(changed)
    assert problems == [
        "sub/WNLI.tsv: must be at the top of the zip, not in sub/",
        "notes.txt: not a file of a submission",
        "WNLI.tsv: missing",
    ]


def test_scores_are_numbers_in_their_range(submission: Path):
    for value in ("5.5", "nan", "high"):
        rows = "".join(f"{i}\t{value if i == 7 else 2.5}\n" for i in range(1379))
        (problem,) = check_submission(rewrite(submission, {"STS-B.tsv": f"index\tprediction\n{rows}".encode()}))
        assert problem == f"STS-B.tsv, line 9: the score {value!r} is not a number from 0 to 5"


def test_a_damaged_zip_is_named(submission: Path, tmp_path: Path):
    raw = bytearray(submission.read_bytes())
    with zipfile.ZipFile(submission) as archive:
        start = archive.getinfo("RTE.tsv").header_offset
        first = archive.start_dir
    raw[start + 40 : start + 60] = bytes(20)  # in what is compressed: zlib's own error
    (tmp_path / "a.zip").write_bytes(raw)
    (problem,) = check_submission(tmp_path / "a.zip")
    assert problem.startswith("RTE.tsv: cannot be unpacked (")
    raw = bytearray(submission.read_bytes())
    raw[first + 6] = 255  # the table of contents asks for a version of zip that there is none of
    (tmp_path / "b.zip").write_bytes(raw)
    with pytest.raises(MacaronError, match=r"b\.zip: not a zip file"):
        check_submission(tmp_path / "b.zip")


def test_no_zip_at_all(tmp_path: Path):
    (tmp_path / "x.zip").write_text("no")
    with pytest.raises(MacaronError, match=r"x\.zip: not a zip file"):
        check_submission(tmp_path / "x.zip")


def test_bombs_and_other_files(submission: Path):
    bomb = rewrite(submission, {"QQP.tsv": b"\0" * (LARGEST + 1)}, {f"other-{i}": b"" for i in range(30)})
    assert bomb.stat().st_size < 1_000_000
    problems = check_submission(bomb)
    assert "QQP.tsv: 8,388,609 bytes, the limit is 8,388,608" in problems
    assert "20 more files are not expected" in problems
    assert len(problems) == 12
