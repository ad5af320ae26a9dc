"""The metrics of a run."""

import json
import math
from pathlib import Path

from macaron.lab.run_folder import RunFolder


def test_values_are_in_order_finite_and_the_later_ones_count(tmp_path: Path):
    lines = [{"update": 20, "nll": 2.0, "seconds": 2.5}, {"update": 10, "nll": 3, "seconds": 1.5}]
    lines += [{"update": 20, "nll": 2.5, "seconds": 9.5}, {"update": 30, "nll": math.nan}, {"update": 40, "loss": 1.0}]
    (tmp_path / "recipe.toml").touch()
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = RunFolder(tmp_path)
    assert run.values("nll") == [(10, 3.0), (20, 2.5)]
    assert run.values("nll", "seconds") == [(1.5, 3.0), (2.5, 2.0), (9.5, 2.5)]
    assert run.values("loss") == [(40, 1.0)]
