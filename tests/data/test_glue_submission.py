"""The zip for GLUE's server."""

import zipfile
from pathlib import Path

import pytest

from macaron.data.glue import (
    TASKS,
    as_predictions,
    expected_files,
    prediction_file,
    write_submission,
    wrong_sizes,
)


@pytest.fixture(scope="module")
def submission(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zip") / "submission.zip"
    predictions = {"RTE.tsv": as_predictions(TASKS["rte"], [i % 2 for i in range(3000)])}
    predictions["STS-B.tsv"] = as_predictions(TASKS["stsb"], [i / 200 for i in range(1379)])
    filled = write_submission(path, {name: prediction_file(rows) for name, rows in predictions.items()})
    assert sorted(filled) == sorted(set(expected_files()) - set(predictions))
    return path


def test_all_files_that_the_server_expects(submission: Path):
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


def test_a_test_set_of_another_length_is_named():
    rows = {"WNLI.tsv": prediction_file(["0"] * 146), "AX.tsv": prediction_file(["neutral"] * 1103)}
    assert wrong_sizes(rows) == ["AX.tsv: 1,103 rows where the test set has 1,104"]
