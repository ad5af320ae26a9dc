"""The demo: twins trained on a generated corpus, a Transformer and a Macaron of equal size, scored and compared.

Both get the same number of updates: the recipe's, or fewer on a slow machine. The number is chosen before the first
twin is trained, from the measured time of an update, and the learning-rate schedule ends with it.
"""

import io
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from macaron.data.demo_corpus import WordByWord, write_demo_corpus
from macaron.data.prepare import prepare
from macaron.decode import Translator
from macaron.errors import Interrupted, MacaronError
from macaron.evaluate import bootstrap_interval, paired_bootstrap, sacre_bleu
from macaron.files import read_lines, write_json
from macaron.lab.compare.result import Result
from macaron.lab.particles.build_data import build_data
from macaron.lab.particles.page import write as write_particles
from macaron.lab.run_folder import RunFolder
from macaron.lab.twins import Twins, make_twins, with_budget
from macaron.recipe import Recipe, load_data_recipe, load_recipe, recipe_from
from macaron.settings import read_toml
from macaron.tasks.run import run as train_run

TWINS = {"Transformer": "lie-fg", "Macaron": "strang-gfg"}
SETS = {"test": "held-out sentences", "novel": "words and constructions never seen together"}
EXAMPLE = "Wir wissen, dass der Junge die Tür schließt."
#: Minutes for everything, and the share of them that is planned: the speed of a machine varies.
BUDGET, PLANNED = 6.0, 0.85
#: Translating, scoring and the pages take as long as this many updates of one twin.
SCORING = 400
#: Updates of a trial run, and those at its start that are too slow to count.
TRIAL, WARM_UP = 24, 8
#: The minimum number of updates of a twin, however slow the machine is.
LEAST = 20


@dataclass(frozen=True)
class Demo:
    """The demo in a folder; ``say`` is told the progress, ``budget`` is in minutes."""

    recipe: Path
    runs: Path
    say: Callable[[str], None]
    budget: float = BUDGET

    def run(self) -> dict[str, Any]:
        """Run the demo, reusing what an earlier one has finished."""
        started = time.monotonic()
        corpus, data = self.runs / "demo-corpus", self.runs / "demo-data"
        recipe = load_recipe(self.recipe, [f"data.out={data}"])
        new = write_demo_corpus(corpus)
        self.say(f"1. Corpus: {'100,000 German-English pairs from a grammar, in' if new else 'reusing'} {corpus}")
        outcome = prepare(load_data_recipe(self.recipe, [f"data.out={data}", f"data.root={corpus}"]))
        done = "reusing" if outcome.reason is None else f"{outcome.data.vocab_size:,} subwords, in"
        self.say(f"2. Prepare: {done} {data}")
        twins = self._twins(recipe, started)
        self._check(twins)
        self.say("4. Training (runs that are finished are reused)")
        twins.train()
        self.say("5. Scores (sacreBLEU with 95 % confidence interval)")
        pages = {name: str(self.runs / f"demo-{name}.html") for name in ("comparison", "particles")}
        result = twins.compare(Path(pages["comparison"]))
        report = self._score(corpus, result)
        self.say(f"\n6. Pages\n   {result.sentence}")
        write_particles(Path(pages["particles"]), build_data([folder for _, _, folder in twins.plan()], EXAMPLE))
        report |= {"pages": pages, "seconds": round(time.monotonic() - started, 1)}
        write_json(self.runs / "demo-report.json", report)
        self._close(pages)
        return report

    def _folder(self, name: str) -> Path:
        return self.runs / f"demo-{name.lower()}"

    # The number of updates.

    def _twins(self, recipe: Recipe, started: float) -> Twins:
        """The twins with a number of updates that fits the time, or that an earlier demo has chosen."""
        whole = make_twins(recipe, TWINS, 1, self.runs, say=lambda text: self.say(f"   {text}"))
        most = whole.kinds[0].recipe.train.max_updates
        assert most is not None
        updates = self._chosen_before()
        if updates is not None:
            self.say(f"3. Pace: {updates:,} updates of each twin, as an earlier demo has chosen")
        else:
            paces = [measure(kind.recipe) for kind in whole.kinds]
            updates = fitting_updates(paces, 60 * self.budget * PLANNED - (time.monotonic() - started), most)
            each = " and ".join(f"{pace:.3f}" for pace, _ in paces)
            self.say(f"3. Pace: {each} s an update, so {updates:,} of {most:,} updates of each twin")
        kinds = tuple(replace(kind, recipe=shortened(kind.recipe, updates)) for kind in whole.kinds)
        return replace(whole, kinds=kinds, pattern="demo-{name}")

    def _chosen_before(self) -> int | None:
        for name in TWINS:
            stored = self._folder(name) / "recipe.toml"
            updates = read_toml(stored).get("train", {}).get("max_updates") if stored.is_file() else None
            if isinstance(updates, int):
                return updates
        return None

    def _check(self, twins: Twins) -> None:
        """Refuse folders of a demo with another recipe, before anything is trained."""
        for kind, seed, folder in twins.plan():
            if (folder / "recipe.toml").is_file():
                found = recipe_from(read_toml(folder / "recipe.toml"), str(folder / "recipe.toml"))
                if replace(found, data=kind.recipe.data) != kind.seeded(seed):
                    both = " and ".join(str(self._folder(name)) for name in TWINS)
                    raise MacaronError(f"{folder} was made with another recipe: remove {both}, or give another --runs")

    # Scores.

    def _score(self, corpus: Path, result: Result) -> dict[str, Any]:
        baseline, reasons = WordByWord.load(), result.pairs[0].fairness.unfair
        sizes = {kind.label: kind.parameters for kind in result.kinds}
        updates = {kind.label: kind.runs[0].updates for kind in result.kinds}
        for name, size in sizes.items():
            self.say(f"   {name}: {size:,} parameters, {updates[name]:,} updates")
        report: dict[str, Any] = {"parameters": sizes, "updates": updates, "fair": not reasons, "sets": {}}
        if reasons:
            report["unfair"] = list(reasons)
            self.say(f"   Not a fair comparison, so no difference is reported: {'; '.join(reasons)}")
        for part, what in SETS.items():
            source, reference = (list(read_lines(corpus / f"{part}.{language}")) for language in ("de", "en"))
            outputs = {"word by word": [baseline.translate(line) for line in source]}
            for name in TWINS:
                # The comparison has translated the test sentences.
                made = result.translated[name].translations if part == "test" else None
                outputs[name] = made or Translator(self._folder(name)).translate(source)
            scores = {name: sacre_bleu(lines, reference) for name, lines in outputs.items()}
            self.say(f"\n   {len(source):,} {what}")
            found: dict[str, Any] = {"scores": {}}
            report["sets"][part] = found
            for name, score in scores.items():
                interval = bootstrap_interval(score.statistics)
                self.say(f"   {name:14s} {score.score:6.2f}  {interval}")
                found["scores"][name] = {**score.to_dict(), "interval": interval.to_dict()}
            if not reasons:
                difference = paired_bootstrap(scores["Transformer"].statistics, scores["Macaron"].statistics)
                found["macaron_minus_transformer"] = difference.to_dict()
                self.say(f"   Macaron - Transformer: {difference}")
            for i in range(2):
                lines = {name: output[i] for name, output in outputs.items()} | {"reference": reference[i]}
                self.say(
                    "\n".join([f"     {source[i]}", *(f"       {name:14s} {line}" for name, line in lines.items())])
                )
        self.say(f"\n   {scores['Macaron'].definition}; one seed: see docs/results for what may be concluded")
        return report

    def _close(self, pages: dict[str, str]) -> None:
        self.say(f"\nNumbers: {self.runs / 'demo-report.json'}")
        self.say("Open in a browser, no network needed:")
        self.say(f"  {pages['comparison']}   the twins compared: tests, training curves, sentences")
        self.say(f"  {pages['particles']}    the words of a sentence as particles in both")
        self.say("Translate a sentence of your own with a trained model:")
        self.say(f'  echo "{EXAMPLE}" | .venv/bin/macaron translate {self._folder("Macaron")}')


def measure(recipe: Recipe) -> tuple[float, float]:
    """Seconds of an update, and of the rest of a run (start, validation, saving): a trial run, which is discarded."""
    train = replace(recipe.train, max_updates=TRIAL, log_every=1, validate_every=0, checkpoint_every=0)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="macaron-demo-") as folder:
        try:
            with redirect_stderr(io.StringIO()):
                train_run(replace(recipe, train=train), Path(folder) / "run", resume=False, started=started)
        except (Interrupted, KeyboardInterrupt):
            raise Interrupted("stopped while the pace was measured; the same command starts again") from None
        # The last update shares its number with the final validation.
        seconds = [x for _, x in RunFolder.open(Path(folder) / "run").values("seconds")][WARM_UP:-1]
    pace = (seconds[-1] - seconds[0]) / (len(seconds) - 1)
    return pace, max(time.monotonic() - started - TRIAL * pace, 0.0)


def fitting_updates(paces: list[tuple[float, float]], seconds: float, most: int) -> int:
    """The number of updates of each twin such that training and scoring take at most ``seconds``.

    :param paces: for each twin, seconds of an update and of the rest of a run
    :param most: the recipe's number of updates
    """
    update = sum(pace for pace, _ in paces)
    # A full run validates and saves more often than a trial.
    rest = 2 * sum(other for _, other in paces) + SCORING * update / len(paces)
    fitting = int((seconds - rest) / update)
    return most if fitting >= most else min(max(fitting // 10 * 10, LEAST), most)


def shortened(recipe: Recipe, updates: int) -> Recipe:
    """A recipe of fewer updates; the warm-up is shortened alike, and the schedule ends at the last update."""
    most = recipe.train.max_updates or updates
    train = replace(recipe.train, warmup=round(recipe.train.warmup * min(updates / most, 1)))
    return with_budget(replace(recipe, train=train), updates)
