"""The demo: twins trained on a generated corpus for the same number of updates, a Transformer and a Macaron."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from macaron.data.prepare import prepare
from macaron.decode import Translator
from macaron.errors import command_line
from macaron.evaluate import bootstrap_interval, paired_bootstrap, sacre_bleu
from macaron.files import read_lines, write_json
from macaron.lab.compare.comparison import Result, Say
from macaron.lab.compare.kind_statistics import TRIALS
from macaron.lab.particles.build_data import build_data
from macaron.lab.particles.particles_page import write as write_particles
from macaron.lab.twins import Twins, make_twins
from macaron.recipe import load_data_recipe, load_recipe
from macaron.shipped import word_by_word, write_demo_corpus

TWINS = {"Transformer": "lie-fg", "Macaron": "strang-gfg"}
SETS = {"test": "held-out sentences", "novel": "words and constructions never seen together"}
EXAMPLE = "Wir wissen, dass der Junge die Tür schließt."
#: Minutes for everything, and the share of them for training; translating, scoring and the pages take the others.
BUDGET, TRAINING = 6.0, 0.75


def run_demo(recipe_file: Path, runs: Path, say: Say, minutes: float = BUDGET) -> dict[str, Any]:
    """Run the demo in a folder, reusing what an earlier one has finished; ``say`` is told the progress."""
    started = time.monotonic()
    corpus, data, numbers = runs / "demo-corpus", runs / "demo-data", runs / "demo-report.json"
    new = write_demo_corpus(corpus)
    say(f"1. Corpus: {'100,000 German-English pairs from a grammar, in' if new else 'reusing'} {corpus}")
    outcome = prepare(load_data_recipe(recipe_file, [f"data.out={data}", f"data.root={corpus}"]))
    done = "reusing" if outcome.reason is None else f"{outcome.data.vocab_size:,} subwords, in"
    say(f"2. Prepare: {done} {data}")
    say("3. Twins")
    left = minutes - (time.monotonic() - started) / 60
    twins = demo_twins(recipe_file, data, runs, say, max(TRAINING * left / len(TWINS), 0.01))
    say("4. Training (runs that are finished are reused)")
    twins.train()
    say("5. Scores (sacreBLEU with 95 % confidence interval)")
    pages = {name: str(runs / f"demo-{name}.html") for name in ("comparison", "particles")}
    result = twins.compare(Path(pages["comparison"]))
    report = score_twins(result, corpus, say)
    say(f"\n6. Pages\n   {result.sentence}")
    folders = [folder for *_, folder in twins.plan]
    write_particles(Path(pages["particles"]), build_data(folders, EXAMPLE))
    report |= {"pages": pages, "seconds": round(time.monotonic() - started, 1)}
    write_json(numbers, report)
    say(f"""
Numbers: {numbers}
Open in a browser, no network needed:
  {pages["comparison"]}   the twins compared: tests, training curves, sentences
  {pages["particles"]}    the words of a sentence as particles in both
Translate a sentence of your own with a trained model:
  echo "{EXAMPLE}" | {command_line("translate", str(folders[-1]))}""")
    return report


def demo_twins(recipe_file: Path, data: Path, runs: Path, say: Say, minutes: float) -> Twins:
    """The twins, each with the updates of the recipe, or as many as fit into ``minutes``."""
    most = load_recipe(recipe_file).train.max_updates
    limits = ["train.max_updates=", "train.max_epochs=", f"train.max_minutes={minutes:.2f}"]
    recipe = load_recipe(recipe_file, [f"data.out={data}", *limits])
    return make_twins(recipe, TWINS, 1, runs, most=most, say=lambda text: say(f"   {text}"), pattern="demo-{name}")


def score_twins(result: Result, corpus: Path, say: Say) -> dict[str, Any]:
    """Scores of the twins and of the word-by-word baseline on all sets of sentences."""
    unfair = result.pairs[0].fairness.unfair
    report: dict[str, Any] = {"fair": not unfair, "unfair": list(unfair), "parameters": {}, "updates": {}, "sets": {}}
    for kind in result.kinds:
        size, updates = kind.parameters, kind.runs[0].progress.update
        report["parameters"][kind.label], report["updates"][kind.label] = size, updates
        say(f"   {kind.label}: {size:,} parameters, {updates:,} updates")
    if unfair:
        say(f"   Not a fair comparison, so no difference is reported: {'; '.join(unfair)}")
    for part, what in SETS.items():
        source, reference = (list(read_lines(corpus / f"{part}.{language}")) for language in ("de", "en"))
        outputs = {"word by word": word_by_word(part)[: len(source)]}
        for kind in result.kinds:
            # The comparison has translated the test sentences.
            made = result.translated[kind.label].translations if part == "test" else None
            outputs[kind.label] = made or Translator(kind.runs[0].path).translate(source, one_per_line=True)
        say(f"\n   {len(source):,} {what}")
        scores = {name: sacre_bleu(lines, reference) for name, lines in outputs.items()}
        found: dict[str, Any] = {"scores": {}}
        report["sets"][part] = found
        for name, score in scores.items():
            interval = bootstrap_interval(score.statistics)
            say(f"   {name:14s} {score.score:6.2f}  {interval}")
            found["scores"][name] = {**score.to_dict(), "interval": asdict(interval)}
        if not unfair:
            difference = paired_bootstrap(*(scores[name].statistics for name in TWINS), resamples=TRIALS)
            found["macaron_minus_transformer"] = asdict(difference)
            say(f"   Macaron - Transformer: {difference}")
        for i in range(2):
            say(f"     {source[i]}")
            for name, lines in {**outputs, "reference": reference}.items():
                say(f"       {name:14s} {lines[i]}")
    say(f"\n   {scores['Macaron'].definition}; one seed: see docs/results for what may be concluded")
    return report
