"""The particle page as text: what stands in it, the clock, its size. How it behaves is tested in a browser."""

import base64
import copy
import json
import re
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from macaron.lab.particles.build_data import build_data, frame_times
from macaron.lab.particles.particles_page import particles_page
from macaron.models.presets import preset
from macaron.models.translation import TranslationModel
from macaron.text import MacaronTokenizer

LIE, STRANG, CROSS = (["F", "G"], ["G", "F", "G"], ["G", "F", "H", "G"])
NAMES = {"F": "diffusion", "G": "convection", "H": "cross-attention"}


def make_part(name: str, words: int, layers: int, steps: list[str], before: int = 0, after: int = 0) -> dict[str, Any]:
    """A part with random numbers, as many digits as real ones have."""
    draw = np.random.default_rng(words + layers)
    plan = [("start", 0, "The words as they are embedded")]
    plan += [("G", 0, "Before the first layer, convection (half step)")] * before
    plan += [
        (each, layer, f"Layer {layer} of {layers}, {NAMES[each]}") for layer in range(1, layers + 1) for each in steps
    ]
    plan += [("G", layers + 1, "After the last layer, convection (half step)")] * after
    plan += [("end", layers + 1, "The final norm")]
    steps_before = [sum(layer == own for _, layer, _ in plan[1:k]) for k, (_, own, _) in enumerate(plan)]

    def numbers(*shape: int, digits: int = 2) -> Any:
        return np.round(draw.normal(size=shape) * 12, digits).tolist()

    def attention() -> list[list[int]]:
        weights = draw.dirichlet(np.full(words, 0.3), size=words)
        return np.round(100 * weights).astype(int).tolist()

    frames = [
        {
            "operator": operator,
            "layer": layer,
            "step": steps_before[k] + 1,
            "coefficient": 1,
            "label": label,
            "raw": numbers(words, 2),
            "normalised": numbers(words, 2),
            "norm": np.abs(numbers(words, digits=1)).tolist(),
            "move": np.abs(numbers(words)).tolist(),
            "nearest": draw.integers(words, size=(words, 3)).tolist(),
            "lens": [[[int(draw.integers(300)), int(p)] for p in draw.integers(1, 50, size=3)] for _ in range(words)],
            "attention": {"to": "encoder", "weights": attention()} if operator in "FH" else None,
        }
        for k, (operator, layer, label) in enumerate(plan)
    ]
    moved = [frame for frame in frames if frame["operator"] in NAMES]
    return {
        "name": name,
        "tokens": [f"word{i}" for i in range(words)],
        "dimension": 512,
        "lens_note": "What the lens reads.",
        "variance": {"raw": [0.31, 0.12], "normalised": [0.2, 0.055]},
        "axes": {"raw": [-30, 30, -20, 20], "normalised": [-30, 30, -20, 20]},
        "layers": layers,
        "times": frame_times(frames, layers, layers),
        "frames": frames,
        "depth": {
            "moves": [
                {"layer": f["layer"], "operator": f["operator"], "size": numbers(), "relative": numbers()}
                for f in moved
            ],
            "angles": [None, None, *numbers(len(frames) - 2)],
            "similarity": numbers(len(frames)),
            "spread": numbers(len(frames)),
            "commutator": [
                {"layer": layer, "pair": pair, "relative": numbers()}
                for layer in range(1, layers + 1)
                for pair in (["FG", "FH", "GH"] if "H" in steps else ["FG"])
            ],
            "truncation": [{"layer": layer, "relative": numbers()} for layer in range(1, layers + 1)],
        },
    }


def make_model(name: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "translation",
        "scheme": "strang-gfg",
        "equation": "x1 = x + 1/2 γ G(x, t)",
        "parameters": 1234567,
        "output": "We know it.",
        "source": parts[0]["tokens"],
        "parts": list(parts),
    }


def make_data(*models: dict[str, Any], aligned: bool = False, sentence: str = "Wir wissen es.") -> dict[str, Any]:
    words = [f"word{i}" for i in range(300)]
    return {
        "format": "macaron-particles-1",
        "sentence": sentence,
        "aligned": aligned,
        "words": words,
        "models": list(models),
    }


def unpacked(page: str) -> dict[str, Any]:
    """The data as the page's script reads them."""
    stored = re.search(r'<script type="application/json" id="data-particles">(.*?)</script>', page, re.DOTALL)
    assert stored
    return json.loads(zlib.decompress(base64.b64decode(json.loads(stored[1]))))


def times(*parts: dict[str, Any]) -> list[list[float]]:
    deepest = max(part["layers"] for part in parts)
    return [frame_times(part["frames"], part["layers"], deepest) for part in parts]


def test_a_layer_takes_the_same_time_in_every_scheme():
    lie, strang = times(make_part("encoder", 3, 2, LIE), make_part("encoder", 3, 2, STRANG))
    assert lie == [0, 0.5, 1, 1.5, 2, 2.5]
    assert strang == pytest.approx([0, 1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2, 2.5], abs=1e-6)


def test_stacks_of_different_depth_begin_and_end_together():
    shallow, deep = times(make_part("encoder", 3, 2, LIE), make_part("encoder", 3, 4, LIE))
    assert shallow == [0, 1, 2, 3, 4, 4.5]
    assert deep == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5]


def test_ends_of_a_stack_are_outside_its_layers():
    """The control of the theory, half a convection at both ends: layers still run from 0 to their number."""
    plain, control = times(make_part("encoder", 3, 2, LIE), make_part("encoder", 3, 2, LIE, before=1, after=1))
    assert plain == [0, 0.5, 1, 1.5, 2, 2.5]
    assert control == [-0.5, 0, 0.5, 1, 1.5, 2, 2.25, 2.5]


def test_data_stand_in_the_page():
    data = make_data(make_model("one", make_part("encoder", 5, 2, STRANG), make_part("decoder", 4, 2, CROSS)))
    given = copy.deepcopy(data)
    found = unpacked(particles_page(data))
    assert data == given  # it is not changed
    assert found == given


def test_the_same_bytes_every_time():
    data = make_data(make_model("one", make_part("encoder", 5, 2, STRANG)))
    assert particles_page(data) == particles_page(copy.deepcopy(data))


def test_asks_nobody_for_anything():
    page = particles_page(make_data(make_model("one", make_part("encoder", 5, 2, STRANG))))
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)""", page)
    assert not re.search(r"\bimport\s*\(|fetch\(|@import|url\(", page)
    assert set(re.findall(r"https?://[^\s\"'`]+", page)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.slow
def test_thirty_words_and_twelve_layers_are_below_300_kb(tmp_path):
    """Encoder and decoder of a real model, whose large random weights leave nothing regular to compress."""
    sentence = (
        "We all know that the people who live in this city have been waiting for a long time and nobody can tell us "
        "when the new house will be finished."
    )
    tokenizer = MacaronTokenizer.train([sentence] * 3, 600)
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "encoder_layers": 12,
        "decoder_layers": 12,
    }
    model = TranslationModel(preset("macaron-tiny", vocab_size=len(tokenizer), **sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(3.0)
    model.config = replace(model.config, tokenizer_fingerprint=tokenizer.fingerprint())
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    data = build_data([tmp_path], sentence, target=sentence)
    assert [len(part["tokens"]) for part in data["models"][0]["parts"]] == [
        32,
        32,
    ]  # the full stop; the end or the start
    assert len(particles_page(data).encode()) < 300_000


def test_hostile_words():
    bad = "</script><script>alert(1)</script><b onclick='x'>"
    model = make_model(bad, make_part("encoder", 3, 1, STRANG))
    model["output"] = model["equation"] = bad
    model["parts"][0]["tokens"][0] = bad
    page = particles_page(make_data(model, sentence=bad))
    assert "<script>alert" not in page
    assert "<b onclick" not in page
    assert unpacked(page)["models"][0]["parts"][0]["tokens"][0] == bad


def test_says_what_the_shadow_hides():
    model = make_model("one", make_part("encoder", 3, 1, STRANG))
    page = particles_page(make_data(model))
    assert "43 % raw, 26 % normalised, of 512 dimensions" in page
    assert "Points that are close in the picture may be far apart" in page
    assert "What the lens reads." in page
    assert "Two models" not in page
    other = make_model("two", make_part("encoder", 3, 1, LIE))
    assert "rotated (and reflected, if needed) to fit the first" in particles_page(
        make_data(model, other, aligned=True)
    )
    assert "not all pictures could be rotated to fit" in particles_page(make_data(model, other, aligned=False))


def test_only_operators_that_act_are_explained():
    encoder, decoder = make_part("encoder", 3, 1, STRANG), make_part("decoder", 3, 1, CROSS)
    alone, both = (particles_page(make_data(make_model("one", *parts))) for parts in ([encoder], [encoder, decoder]))
    assert re.findall(r'<li class="op-(.)"', alone) == ["G", "F"]
    assert re.findall(r'<li class="op-(.)"', both) == ["G", "F", "H"]
    assert "data-part-choice" not in alone.split("<script>")[1].split("</header>")[1]


def test_curves_without_a_script():
    """Every part has its curves, all models in one chart, each with a sentence and its data as a table."""
    models = [
        make_model(name, make_part("encoder", 3, 2, steps), make_part("decoder", 3, 2, CROSS))
        for name, steps in {"one": LIE, "two": STRANG}.items()
    ]
    page = particles_page(make_data(*models))
    encoder, decoder = page.split('data-part="encoder"')[1].split('data-part="decoder"')
    for part, kinds in {encoder: 2, decoder: 3}.items():
        assert part.count('<figure class="chart"') == 7
        sizes = part.split("<figure")[1]
        assert len(re.findall(r'<path class="line', sizes)) == 2 * kinds
        assert len(re.findall(r'<path class="line dashed', sizes)) == kinds
        assert "<table>" in sizes
    assert page.count('<p class="note">') == 14


def test_an_encoder_without_a_head_and_one_word():
    """No lens, nobody beside the word: nothing to read, and still a page."""
    part = make_part("encoder", 1, 1, STRANG)
    part["lens_note"] = None
    part["depth"]["similarity"] = [None] * len(part["frames"])
    for frame in part["frames"]:
        frame["lens"] = None
        frame["nearest"] = [[]]
    assert "Similarity of the words" in particles_page(make_data(make_model("one", part)))
