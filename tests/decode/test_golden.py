"""Beam search against the n-best lists recorded from the authors' code."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from macaron.decode import SearchSettings, translate_ids
from macaron.models.translation import TranslationModel

pytestmark = pytest.mark.golden
PAD = 1
SETTINGS: dict[str, dict[str, Any]] = {
    "beam5_lenpen1.0": {"beam": 5, "length_penalty": 1.0},
    "beam5_lenpen1.0_cli": {"beam": 5, "length_penalty": 1.0},
    "beam4_lenpen0.6": {"beam": 4, "length_penalty": 0.6},
    "beam1": {"beam": 1},
    "beam5_unnormalized": {"beam": 5, "length_penalty": 0.0},
    "beam5_lenpen1.0_noearlystop": {"beam": 5, "length_penalty": 1.0, "stop": "late-reference"},
}


@pytest.mark.parametrize("name", ["tiny_macaron_v2_trained", "tiny_plain_v1_trained"])
@pytest.mark.parametrize("case", SETTINGS)
@pytest.mark.parametrize("batch", [8, 1])
def test_recorded_lists(
    name: str, case: str, batch: int, golden: Path, golden_model: Callable[[str], TranslationModel]
):
    record = json.loads((golden / name / "beam.json").read_text())
    assert set(record["settings"]) == set(SETTINGS)
    sources = [[token for token in row if token != PAD] for row in record["src_tokens"]]
    settings = SearchSettings(max_length=record["maxlen"], **SETTINGS[case])
    found = []
    for start in range(0, len(sources), batch):
        found += translate_ids(golden_model(name), sources[start : start + batch], settings)
    for ours, theirs in zip(found, record["settings"][case], strict=True):
        assert [list(each.tokens) for each in ours] == [each["tokens"] for each in theirs]
        for mine, recorded in zip(ours, theirs, strict=True):
            assert mine.score == pytest.approx(recorded["score"], abs=1e-4)
            assert mine.token_scores == pytest.approx(recorded["positional_scores"], abs=1e-4)


@pytest.mark.parametrize("name", ["tiny_macaron_v2_trained", "tiny_plain_v1_trained"])
def test_stopping_late_finds_all_that_the_reference_finds_and_what_it_loses(
    name: str, golden: Path, golden_model: Callable[[str], TranslationModel]
):
    record = json.loads((golden / name / "beam.json").read_text())
    sources = [[token for token in row if token != PAD] for row in record["src_tokens"]]
    settings = SearchSettings(max_length=record["maxlen"], stop="late")
    lost = 0
    for ours, theirs in zip(
        translate_ids(golden_model(name), sources, settings),
        record["settings"]["beam5_lenpen1.0_noearlystop"],
        strict=True,
    ):
        kept = [each["tokens"] for each in theirs]
        extra = [each for each in ours if list(each.tokens) not in kept]
        lost += len(extra)
        assert len(extra) <= 1
        assert all(each.score > theirs[-1]["score"] for each in extra)
    assert lost
