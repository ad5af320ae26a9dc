"""The demo: a corpus from a grammar, a Transformer and a Macaron of equal size, both scored on held-out sentences."""

import json
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macaron.data.grammar import WordByWord, demo_corpus
from macaron.data.grammar.corpus import FILES
from macaron.data.prepare import prepare
from macaron.data.recipe import load_data_recipe
from macaron.decode import Translator
from macaron.errors import Interrupted, MacaronError
from macaron.evaluate import Score, bootstrap_interval, paired_bootstrap, sacre_bleu
from macaron.lab.curves import plot_curves
from macaron.settings import read_toml
from macaron.tasks.recipe import load_recipe, write_toml
from macaron.tasks.run import run as train_run
from macaron.text.files import read_lines

TWINS = {"Transformer": "transformer-tiny", "Macaron": "macaron-tiny"}
SETS = {
    "test": "held-out sentences",
    "novel": "words and constructions never seen together",
}
EXAMPLE = "Wir wissen, dass der Junge die Tür schließt."


@dataclass(frozen=True)
class Demo:
    """Where the demo keeps its things, and whom it tells what it does."""

    recipe: Path
    runs: Path
    say: Callable[[str], None]

    def run(self) -> dict[str, Any]:
        """Do all of it, reusing what an earlier demo has finished."""
        started = time.monotonic()
        load_recipe(self.recipe, [])  # a mistake in it shows before anything is made
        corpus = self._corpus()
        self._prepare()
        runs = {name: self._train(name, preset) for name, preset in TWINS.items()}
        report = self._score(corpus, runs)
        figure = self.runs / "demo-curves.png"
        plot_curves(runs, figure, "The demo's twins")
        report |= {"figure": str(figure), "seconds": round(time.monotonic() - started, 1)}
        text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
        (self.runs / "demo-report.json").write_text(text, encoding="utf-8")
        self._close(figure, runs["Macaron"])
        return report

    def _corpus(self) -> dict[str, list[str]]:
        folder = self.runs / "demo-corpus"
        if all((folder / name).is_file() for name in FILES):
            self.say(f"1. Corpus: reusing {folder}")
        else:
            self.say("1. Corpus: 100,000 German-English pairs from a grammar")
            demo_corpus().write(folder)
        corpus = {name: list(read_lines(folder / name)) for name in FILES}
        # The test set does not depend on the size of the rest, so it tells whether the grammar is still the same.
        test = list(zip(corpus["test.de"], corpus["test.en"], strict=True))
        if test != list(demo_corpus(n_train=0, n_valid=0, n_test=len(test), n_novel=0).test):
            raise MacaronError(
                f"{folder} is not what this version's grammar makes: remove {self.runs}/demo-*, or give another --runs"
            )
        return corpus

    def _prepare(self) -> None:
        settings = [f"data.out={self.runs / 'demo-data'}", f"data.root={self.runs / 'demo-corpus'}"]
        outcome = prepare(load_data_recipe(self.recipe, settings))
        data = outcome.data
        done = f"reusing {data.folder}" if outcome.reason is None else f"{data.vocab_size:,} subwords, in {data.folder}"
        self.say(f"2. Prepare: {done}")

    def _train(self, name: str, preset: str) -> Path:
        out = self.runs / f"demo-{name.lower()}"
        number = list(TWINS).index(name) + 3
        recipe = load_recipe(self.recipe, [f"data.out={self.runs / 'demo-data'}", f"model.preset={preset}"])
        if (out / "recipe.toml").is_file() and read_toml(out / "recipe.toml") != tomllib.loads(
            write_toml(recipe.to_data())
        ):
            raise MacaronError(f"{out} was made with another recipe: remove it (and its twin), or give another --runs")
        if (out / "summary.json").is_file() and (out / "model" / "config.json").is_file():
            self.say(f"{number}. {name}: reusing {out} (remove it to train again)")
            return out
        resume = out.exists()
        self.say(f"{number}. {name} ({preset}): {'going on with' if resume else 'training'} {out}")
        try:
            train_run(recipe, out, resume)
        except Interrupted as stop:
            raise Interrupted(f"{str(stop).partition(';')[0]}; start the demo again to go on from there") from None
        return out

    def _score(self, corpus: dict[str, list[str]], runs: dict[str, Path]) -> dict[str, Any]:
        self.say("5. Scores (sacreBLEU with 95 % confidence interval)")
        baseline = WordByWord.learn(zip(corpus["train.de"], corpus["train.en"], strict=True))
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
            self.say(f"   Macaron - Transformer: {twins}")
            report["sets"][part] = {"scores": found, "macaron_minus_transformer": twins.to_dict()}
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
                f"   rate had come down. Give them more time (train.max_minutes in {self.recipe}), remove\n"
                f"   {self.runs}/demo-transformer and {self.runs}/demo-macaron, and run again."
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

    def _close(self, figure: Path, macaron: Path) -> None:
        self.say(f"\nCurves: {figure}    Numbers: {self.runs / 'demo-report.json'}")
        self.say("Translate a sentence of your own with what was trained:")
        self.say(f'  echo "{EXAMPLE}" | .venv/bin/macaron translate {macaron}')


def _summary(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return found
