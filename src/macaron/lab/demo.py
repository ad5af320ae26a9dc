"""The demo: a corpus from a grammar, a Transformer and a Macaron of equal size, both scored on held-out sentences."""

import json
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macaron.data.demo_corpus import FILES, WordByWord, write_demo_corpus
from macaron.data.prepare import prepare
from macaron.decode import Translator
from macaron.errors import Interrupted, MacaronError
from macaron.evaluate import Score, bootstrap_interval, paired_bootstrap, sacre_bleu
from macaron.files import read_lines
from macaron.lab.compare.comparison import write_comparison
from macaron.lab.curves import plot_curves
from macaron.lab.particles.build_data import build_data
from macaron.lab.particles.page import write as write_particles
from macaron.recipe import load_data_recipe, load_recipe, write_toml
from macaron.settings import read_toml
from macaron.tasks.run import run as train_run

TWINS = {"Transformer": "transformer-tiny", "Macaron": "macaron-tiny"}
SETS = {
    "test": "held-out sentences",
    "novel": "words and constructions never seen together",
}
#: Minutes that all of it may take; of these so many seconds are kept for scores and pages, and the least a twin gets.
BUDGET = 5.5
SCORING, LEAST = 80.0, 30.0
EXAMPLE = "Wir wissen, dass der Junge die Tür schließt."


@dataclass(frozen=True)
class Demo:
    """Where the demo keeps its things, whom it tells what it does, and how many minutes it may take."""

    recipe: Path
    runs: Path
    say: Callable[[str], None]
    budget: float = BUDGET

    def run(self) -> dict[str, Any]:
        """Do all of it, reusing what an earlier demo has finished."""
        started = time.monotonic()
        load_recipe(self.recipe, [])  # a mistake in it shows before anything is made
        corpus = self._corpus()
        self._prepare()
        minutes = self._minutes(time.monotonic() - started)
        runs = {name: self._train(name, preset, minutes) for name, preset in TWINS.items()}
        report = self._score(corpus, runs)
        figure = self.runs / "demo-curves.png"
        plot_curves(runs, figure, "The demo's twins")
        pages = self._pages(runs)
        report |= {"figure": str(figure), "pages": pages, "seconds": round(time.monotonic() - started, 1)}
        text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
        (self.runs / "demo-report.json").write_text(text, encoding="utf-8")
        self._close(figure, pages, runs["Macaron"])
        return report

    def _corpus(self) -> dict[str, list[str]]:
        folder = self.runs / "demo-corpus"
        written = write_demo_corpus(folder)
        done = f"100,000 German-English pairs, in {folder}" if written else f"reusing {folder}"
        self.say(f"1. Corpus: {done}")
        return {name: list(read_lines(folder / name)) for name in FILES}

    def _prepare(self) -> None:
        settings = [f"data.out={self.runs / 'demo-data'}", f"data.root={self.runs / 'demo-corpus'}"]
        outcome = prepare(load_data_recipe(self.recipe, settings))
        data = outcome.data
        done = f"reusing {data.folder}" if outcome.reason is None else f"{data.vocab_size:,} subwords, in {data.folder}"
        self.say(f"2. Prepare: {done}")

    def _minutes(self, elapsed: float) -> float:
        """The cap of both twins: that of one which an earlier demo has begun, otherwise what is left for each."""
        for name in TWINS:
            stored = self._folder(name) / "recipe.toml"
            if stored.is_file() and "max_minutes" in (begun := read_toml(stored).get("train", {})):
                return float(begun["max_minutes"])
        return twin_minutes(self.budget, elapsed, load_recipe(self.recipe, []).train.max_minutes)

    def _folder(self, name: str) -> Path:
        return self.runs / f"demo-{name.lower()}"

    def _train(self, name: str, preset: str, minutes: float) -> Path:
        out = self._folder(name)
        number = list(TWINS).index(name) + 3
        settings = [f"data.out={self.runs / 'demo-data'}", f"model.preset={preset}", f"train.max_minutes={minutes}"]
        recipe = load_recipe(self.recipe, settings)
        wanted = tomllib.loads(write_toml(recipe.to_data()))
        if (out / "recipe.toml").is_file() and _capless(read_toml(out / "recipe.toml")) != _capless(wanted):
            raise MacaronError(f"{out} was made with another recipe: remove it (and its twin), or give another --runs")
        if (out / "summary.json").is_file() and (out / "model" / "config.json").is_file():
            self.say(f"{number}. {name}: reusing {out} (remove it to train again)")
            return out
        resume = out.exists()
        self.say(f"{number}. {name} ({preset}): {'going on with' if resume else 'training'} {out}")
        try:
            train_run(recipe, out, resume, started=time.monotonic())
        except Interrupted as stop:
            raise Interrupted(f"{str(stop).partition(';')[0]}; start the demo again to go on from there") from None
        return out

    def _score(self, corpus: dict[str, list[str]], runs: dict[str, Path]) -> dict[str, Any]:
        self.say("5. Scores (sacreBLEU with 95 % confidence interval)")
        baseline = WordByWord.load()
        translators = {name: Translator(path) for name, path in runs.items()}
        sizes = {name: each.model.num_parameters() for name, each in translators.items()}
        updates = {name: _summary(path)["update"] for name, path in runs.items()}
        for name, size in sizes.items():
            self.say(f"   {name}: {size:,} parameters, {updates[name]:,} updates")
        fair = self._is_fair(updates)
        report: dict[str, Any] = {"parameters": sizes, "updates": updates, "fair": fair, "sets": {}}
        for part, what in SETS.items():
            source, reference = corpus[f"{part}.de"], corpus[f"{part}.en"]
            outputs = {"word by word": [baseline.translate(line) for line in source]}
            outputs |= {name: each.translate(source) for name, each in translators.items()}
            scores = {name: sacre_bleu(lines, reference) for name, lines in outputs.items()}
            self.say(f"\n   {len(source):,} {what}")
            found = {name: self._line(name, score) for name, score in scores.items()}
            twins = paired_bootstrap(scores["Transformer"].statistics, scores["Macaron"].statistics)
            difference = twins.to_dict()
            if not fair:
                del difference["p_value"]  # it would speak of the clock, not of the models
            self.say(f"   Macaron - Transformer: {twins if fair else f'{twins.difference:+.2f} {twins.interval}'}")
            report["sets"][part] = {"scores": found, "macaron_minus_transformer": difference}
            self._examples(source, reference, outputs)
        self.say(f"\n   {scores['Macaron'].definition}; one seed: see docs/results for what may be concluded")
        return report

    def _is_fair(self, updates: dict[str, int]) -> bool:
        """Whether both twins came to the end of their schedule; if not, say so."""
        whole = max(load_recipe(self.recipe, []).train.max_updates or 0, *updates.values())
        early = [f"{name} after {made:,}" for name, made in updates.items() if made < whole]
        if early:
            self.say(
                f"   No fair comparison: {' and '.join(early)} of {whole:,} updates had to stop, before the learning\n"
                f"   rate had come down: this machine is too slow, or busy, for the demo's {self.budget:g} minutes.\n"
                f"   Remove {self._folder('Transformer')} and {self._folder('Macaron')}; --minutes gives it more."
            )
        return not early

    def _line(self, name: str, score: Score) -> dict[str, Any]:
        interval = bootstrap_interval(score.statistics)
        self.say(f"   {name:14s} {score.score:6.2f}  {interval}")
        return {**score.to_dict(), "interval": interval.to_dict()}

    def _examples(self, source: list[str], reference: list[str], outputs: dict[str, list[str]], count: int = 2) -> None:
        for i in range(count):
            self.say(f"     {source[i]}")
            for name, lines in outputs.items():
                self.say(f"       {name:14s} {lines[i]}")
            self.say(f"       {'reference':14s} {reference[i]}")

    def _pages(self, runs: dict[str, Path]) -> dict[str, str]:
        """The comparison of the twins, and a sentence on its way through both."""
        self.say("\n6. Pages")
        comparison, particle_page = self.runs / "demo-comparison.html", self.runs / "demo-particles.html"
        found = write_comparison(runs, self.runs / "demo-data", "test", comparison)
        self.say(f"   {found['verdict']}")
        write_particles(particle_page, build_data(list(runs.values()), EXAMPLE))
        return {"comparison": str(comparison), "particles": str(particle_page)}

    def _close(self, figure: Path, pages: dict[str, str], macaron: Path) -> None:
        self.say(f"\nCurves: {figure}    Numbers: {self.runs / 'demo-report.json'}")
        self.say("Open in a browser, no network needed:")
        self.say(f"  {pages['comparison']}   the twins compared, with tests")
        self.say(f"  {pages['particles']}    the words of a sentence as particles in both")
        self.say("Translate a sentence of your own with what was trained:")
        self.say(f'  echo "{EXAMPLE}" | .venv/bin/macaron translate {macaron}')


def twin_minutes(budget: float, elapsed: float, limit: float | None) -> float:
    """Minutes for each twin when so many seconds are over: half of what scoring leaves, at most the recipe's limit."""
    minutes = round(max(60 * budget - SCORING - elapsed, 2 * LEAST) / 2 / 60, 3)
    return minutes if limit is None else min(minutes, limit)


def _capless(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe but for the cap, which the demo sets itself: it changes no run that it does not stop."""
    train = {key: value for key, value in recipe["train"].items() if key != "max_minutes"}
    return {**recipe, "train": train}


def _summary(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return found
