"""The data of a page, from model folders; the figure and the animation that are made of it."""

import copy
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from macaron.decode import Translator
from macaron.errors import MacaronError, UsageError
from macaron.lab.particles.animation import _canvas, gif, png, tracks
from macaron.lab.particles.build_data import assemble, build_data
from macaron.lab.particles.particles_page import particles_page, to_json
from macaron.lab.particles.traced_model import MAX_TOKENS, TracedModel
from macaron.models.encoder import EncoderForPreTraining, EncoderForSequenceClassification
from macaron.models.presets import preset
from macaron.models.translation import TranslationModel
from macaron.text import MacaronTokenizer

LINES = [
    "the cat sits on the mat .",
    "where is it ? a dog and a cat are in the house .",
    "we know that the boy is here .",
]
SENTENCE = "the cat and a dog ."
WORDS = (
    "we know that the boy is in the house and the cat sits on the mat where a dog and a boy sit , and it is not here ."
)
TINY = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}


def save(path: Path, model: Any, tokenizer: MacaronTokenizer) -> Path:
    with torch.no_grad():  # away from fresh weights, which only repeat their last token
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def translation(path: Path, name: str, seed: int = 0, **changes: Any) -> Path:
    tokenizer = MacaronTokenizer.train(LINES * 5, 300)
    torch.manual_seed(seed)
    changes |= {"vocab_size": len(tokenizer), "tokenizer_fingerprint": tokenizer.fingerprint()}
    config = preset(name, **TINY, **changes)
    model = TranslationModel(config)
    model.generation_config.max_length = 12
    return save(path, model, tokenizer)


def encoder(path: Path, kind: Any = EncoderForPreTraining, **changes: Any) -> Path:
    tokenizer = MacaronTokenizer.train([*LINES, WORDS] * 5, 400, kind="encoder")
    torch.manual_seed(0)
    fingerprint = tokenizer.fingerprint()
    fields = {"vocab_size": len(tokenizer), "tokenizer_fingerprint": fingerprint, **TINY, **changes}
    return save(path, kind(preset("macaron-bert-tiny", **fields)), tokenizer)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("particles")
    return {
        "macaron": translation(root / "mine" / "model", "macaron-tiny"),
        "transformer": translation(root / "twin", "transformer-tiny", 1),
        "deep": translation(root / "deep", "macaron-tiny", 2, encoder_layers=3, decoder_layers=1),
        "control": translation(
            root / "control",
            "transformer-tiny",
            encoder_layers=1,
            prologue=[["G", 0.5]],
            epilogue=[["F", 1.0], ["G", 0.5]],
        ),
        "post": translation(root / "post", "macaron-tiny", norm="post"),
        "bert": encoder(root / "bert"),
        "classifier": encoder(root / "classifier", EncoderForSequenceClassification),
    }


@pytest.fixture(scope="module")
def data(folders: dict[str, Path]) -> dict[str, Any]:
    return build_data([folders["macaron"].parent], SENTENCE)  # the folder of a run


def parts(data: dict[str, Any], model: int = 0) -> dict[str, Any]:
    return {part["name"]: part for part in data["models"][model]["parts"]}


def test_what_is_said_of_a_model(data: dict[str, Any], folders: dict[str, Path]):
    assert json.loads(to_json(data)) == data
    assert {key: data[key] for key in ("format", "sentence", "aligned")} == {
        "format": "macaron-particles-1",
        "sentence": SENTENCE,
        "aligned": False,
    }
    (model,) = data["models"]
    translator = Translator(folders["macaron"])
    assert (model["name"], model["kind"], model["scheme"]) == ("mine", "translation", "strang-gfg")
    assert model["parameters"] == translator.model.num_parameters()
    assert model["equation"].count("\n") == 2
    assert model["output"] == model["target"] == translator.translate(SENTENCE, one_per_line=True)
    assert model["source"] == parts(data)["encoder"]["tokens"]
    assert parts(data)["encoder"]["tokens"][-1] == "[end]"
    assert parts(data)["decoder"]["tokens"][0] == "[start]"
    assert parts(data)["decoder"]["scheme"] == "strang-gfhg"


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_every_frame_is_complete(data: dict[str, Any], name: str):
    part = parts(data)[name]
    count, frames = len(part["tokens"]), part["frames"]
    order = ["start", *("GFG" if name == "encoder" else "GFHG") * 2, "end"]
    assert [frame["operator"] for frame in frames] == order
    left, right, bottom, top = part["axes"]["raw"]
    for frame in frames:
        for key in ("raw", "normalised", "norm", "move", "nearest", "lens"):
            assert len(frame[key]) == count
        assert all(left <= x <= right and bottom <= y <= top for x, y in frame["raw"])
        assert all(len(near) == 3 and len({i, *near}) == 4 for i, near in enumerate(frame["nearest"]))
        assert all(1 <= len(lens) <= 3 and all(0 <= p <= 100 for _, p in lens) for lens in frame["lens"])
        assert (frame["attention"] is not None) == (frame["operator"] in ("F", "H"))
        if frame["attention"] is not None:
            to = "decoder" if (name, frame["operator"]) == ("decoder", "F") else "encoder"
            assert frame["attention"]["to"] == to
            columns = len(parts(data)[to]["tokens"])
            for row in frame["attention"]["weights"]:
                assert len(row) == columns
                assert abs(sum(row) - 100) <= columns / 2
    assert set(frames[0]["move"]) == {0}
    depth = part["depth"]
    assert len(depth["moves"]) == len(frames) - 2
    assert {len(depth[key]) for key in ("angles", "similarity", "spread")} == {len(frames)}
    assert depth["angles"][:2] == [None, None]
    assert all(0 <= angle <= 180 for angle in depth["angles"][2:])
    assert [entry["layer"] for entry in depth["truncation"]] == [1, 2]
    pairs = ["FG"] if name == "encoder" else ["FG", "FH", "GH"]
    assert [(entry["layer"], entry["pair"]) for entry in depth["commutator"]] == [(i, p) for i in (1, 2) for p in pairs]


def test_numbers_are_those_of_the_states(data: dict[str, Any], folders: dict[str, Path]):
    (found,) = TracedModel(folders["macaron"]).trace(SENTENCE, ["encoder"]).parts
    part = parts(data)["encoder"]
    states = torch.stack([frame.state for frame in found.trace.frames])
    for index, frame in enumerate(part["frames"]):
        assert frame["norm"] == pytest.approx(states[index].norm(dim=-1).tolist(), rel=6e-3)
    moved = (states[1:] - states[:-1]).norm(dim=-1)
    assert part["frames"][3]["move"] == pytest.approx(moved[2].tolist(), rel=6e-3)
    sizes = [entry["size"] for entry in part["depth"]["moves"]]
    assert sizes == pytest.approx(moved[:-1].mean(-1).tolist(), rel=1e-3)
    cosines = torch.nn.functional.cosine_similarity(states[2][:, None], states[2][None], dim=-1).fill_diagonal_(-2)
    assert [near[0] for near in part["frames"][2]["nearest"]] == cosines.argmax(-1).tolist()
    # All distances of the picture are at most the true ones, and its shares of variance are what it shows.
    points = np.array([frame["raw"] for frame in part["frames"]])
    spread = ((states - states.flatten(0, 1).mean(0)).double() ** 2).sum()
    shares = (points.reshape(-1, 2) ** 2).sum(0) / float(spread)
    assert part["variance"]["raw"] == pytest.approx(shares, rel=1e-2)
    # The normalised view of the last sub-step and of the final norm are the same.
    assert part["frames"][-1]["normalised"] == part["frames"][-2]["normalised"]


def test_the_last_lens_is_the_models_own_answer(data: dict[str, Any], folders: dict[str, Path]):
    traced_model = TracedModel(folders["macaron"])
    target = Translator(folders["macaron"]).translate_nbest([SENTENCE])[0][0].tokens
    (source,) = traced_model.tokenizer.encode_lines([SENTENCE])
    seen = torch.tensor([[2, *target[:-1]]])
    with torch.no_grad():
        logits = traced_model.model(torch.tensor([source]), seen)[0]
    best = logits.softmax(-1).max(-1)
    lens = parts(data)["decoder"]["frames"][-1]["lens"]
    assert [data["words"][row[0][0]] for row in lens] == [traced_model.labels(i) for i in best.indices.tolist()]
    assert [row[0][1] for row in lens] == pytest.approx((100 * best.values).tolist(), abs=0.51)


def test_a_target_is_what_the_decoder_is_run_over(folders: dict[str, Path]):
    found = build_data([folders["macaron"]], SENTENCE, target="a dog", parts=["decoder"])
    (part,) = found["models"][0]["parts"]
    assert part["tokens"][0] == "[start]"
    assert "".join(part["tokens"][1:]).replace("·", "") == "adog"
    assert found["models"][0]["target"] == "a dog"
    assert found["models"][0]["output"] != "a dog"
    heads = [frame["attention"] for frame in part["frames"] if frame["operator"] == "H"]
    assert {len(row) for head in heads for row in head["weights"]} == {len(found["models"][0]["source"])}


def test_two_models_are_turned_towards_each_other_where_tokens_agree(folders: dict[str, Path]):
    pair = [folders["macaron"], folders["transformer"]]
    both = build_data(pair, SENTENCE, target="the cat .")
    assert both["aligned"]
    assert [len(parts(both, i)["encoder"]["frames"]) for i in (0, 1)] == [8, 6]
    for name in ("encoder", "decoder"):
        assert parts(both, 0)[name]["axes"] == parts(both, 1)[name]["axes"]
        assert parts(both, 1)[name]["aligned"]
    alone = build_data(pair[1:], SENTENCE, target="the cat .")
    assert parts(both, 1)["encoder"]["depth"] == parts(alone)["encoder"]["depth"]
    apart = build_data(pair, SENTENCE)
    assert apart["models"][0]["output"] != apart["models"][1]["output"]
    assert not apart["aligned"]
    assert parts(apart, 1)["encoder"]["aligned"]
    assert not parts(apart, 1)["decoder"]["aligned"]


def test_the_same_model_twice_is_the_same_picture_twice(folders: dict[str, Path]):
    both = build_data([folders["macaron"]] * 2, SENTENCE, parts=["encoder"])
    first, second = (np.array([frame["raw"] for frame in parts(both, i)["encoder"]["frames"]]) for i in (0, 1))
    assert second == pytest.approx(first, abs=2e-2)
    assert both["models"][0]["name"] != both["models"][1]["name"]


def test_models_of_other_depth_and_of_the_other_kind(folders: dict[str, Path]):
    assert build_data([folders["macaron"], folders["deep"]], SENTENCE, target="a cat")["aligned"]
    assert parts(build_data([folders["macaron"], folders["control"]], SENTENCE), 1)["encoder"]["aligned"]
    mixed = build_data([folders["macaron"], folders["bert"]], SENTENCE)
    assert not mixed["aligned"]
    assert [[part["name"] for part in model["parts"]] for model in mixed["models"]] == [
        ["encoder", "decoder"],
        ["encoder"],
    ]


def test_an_encoder_fills_in_words_and_a_classifier_reads_none(folders: dict[str, Path]):
    found = build_data([folders["bert"]], "the <mask> sits")
    (part,) = found["models"][0]["parts"]
    assert part["tokens"][0] == "[cls]"
    assert "[mask]" in part["tokens"]
    traced_model = TracedModel(folders["bert"])
    with torch.no_grad():
        ids = traced_model.tokenizer.encode_lines(["the <mask> sits"], recognise_specials=True)
        logits = traced_model.model(torch.tensor(ids))[0]
    names = [traced_model.labels(i) for i in logits.argmax(-1).tolist()]
    assert [found["words"][row[0][0]] for row in part["frames"][-1]["lens"]] == names
    other = build_data([folders["classifier"]], SENTENCE)
    assert other["words"] == []
    assert {frame["lens"] for frame in parts(other)["encoder"]["frames"]} == {None}
    assert parts(other)["encoder"]["lens_note"] is None


def test_the_lens_reads_every_frame_through_the_final_norm(folders: dict[str, Path]):
    traced_model = TracedModel(folders["macaron"])
    torch.manual_seed(3)
    with torch.no_grad():
        for stack in (traced_model.model.encoder, traced_model.model.decoder):
            stack.norm.weight.normal_(0, 2)
            stack.norm.bias.normal_()
    subject = traced_model.trace(SENTENCE, ["encoder", "decoder"])
    found = assemble(SENTENCE, [subject])
    for part in subject.parts:
        norm = getattr(traced_model.model, part.name).norm
        for frame, shown in zip(part.trace.frames, parts(found)[part.name]["frames"], strict=True):
            with torch.no_grad():
                state = frame.state if frame.operator == "end" else norm(frame.state)
                best = torch.softmax(state @ traced_model.model.embedding.tokens.weight.T, -1).max(-1)
            assert [found["words"][row[0][0]] for row in shown["lens"]] == list(
                map(traced_model.labels, best.indices.tolist())
            )
            assert [row[0][1] for row in shown["lens"]] == (100 * best.values).round().int().tolist()


def test_a_post_norm_model_has_no_final_norm(folders: dict[str, Path]):
    found = build_data([folders["post"]], SENTENCE)
    assert [frame["operator"] for frame in parts(found)["encoder"]["frames"]] == ["start", *"GFGGFG"]
    # It is compared with a pre-norm model at the start and at the end only.
    assert build_data([folders["macaron"], folders["post"]], SENTENCE, target="a cat")["aligned"]


def test_signals_of_the_steps_are_frames_of_their_own(tmp_path: Path):
    folder = translation(tmp_path / "universal", "transformer-tiny", tying="depth", positions_at="layers")
    found = build_data([folder], SENTENCE, parts=["encoder"])
    frames = parts(found)["encoder"]["frames"]
    assert [frame["operator"] for frame in frames] == ["start", *("signal", "F", "G") * 2, "end"]
    assert frames[4]["label"] == "Layer 2 of 2, position and step"
    assert particles_page(found).endswith("</html>\n")
    assert Image.open(io.BytesIO(png(found))).size[0] > 600


@pytest.mark.slow
def test_thirty_words_and_twelve_layers_are_small(tmp_path: Path):
    folder = encoder(tmp_path / "bert12", num_hidden_layers=12)
    assert len(WORDS.split()) >= 30
    found = build_data([folder], WORDS)
    assert len(found["models"][0]["parts"][0]["frames"]) == 38
    assert len(to_json(found).encode()) < 180_000
    assert len(particles_page(found).encode()) < 300_000
    both = build_data([folder, folder], WORDS)
    assert len(particles_page(both).encode()) < 300_000


def test_the_same_command_writes_the_same_bytes(data: dict[str, Any], folders: dict[str, Path]):
    again = build_data([folders["macaron"].parent], SENTENCE)
    assert to_json(again) == to_json(data)
    assert png(again) == png(data)


def test_the_figure(data: dict[str, Any], folders: dict[str, Path]):
    picture = Image.open(io.BytesIO(png(data)))
    assert picture.format == "PNG"
    assert picture.size[0] > picture.size[1] > 600
    odd = build_data([folders["macaron"]], "$ cat $ <b> \\alpha_{ 猫", parts=["encoder"])
    assert Image.open(io.BytesIO(png(odd))).size[0] > 600  # nothing of it is taken for a formula
    # Only sub-steps are drawn, and a layer takes the same time in all panels.
    ((track, _),) = tracks(data)
    assert "end" not in [frame["operator"] for frame in track.frames]
    assert track.times == pytest.approx(np.arange(7) / 6)
    assert png(data, "normalised") != png(data)
    ((normalised, _),) = tracks(data, "normalised")
    part = parts(data)["encoder"]
    assert normalised.points.tolist() == [frame["normalised"] for frame in part["frames"][:-1]]


def test_titles_stay_in_their_panels(data: dict[str, Any]):
    long = copy.deepcopy(data)
    long["models"][0]["name"] = "/home/somebody/projects/translation/runs/twins-of-a-long-name/strang-gfg-seed1 (2)"
    for dots in ("current state", "after the last sub-step"):
        figure, panels = _canvas(tracks(long), SENTENCE, 100, dots)
        for axes, _ in panels:
            title, panel = axes.title if axes.title.get_text() else axes._left_title, axes.get_window_extent()
            assert "of the variance" in title.get_text().replace("\n", " ")
            assert title.get_window_extent().x1 <= panel.x1 + 0.03 * panel.width
            assert title.get_window_extent().y1 <= figure.bbox.y1


def test_the_animation(folders: dict[str, Path]):
    content = gif(build_data([folders["macaron"]], SENTENCE, parts=["decoder"]))
    assert len(content) < 3_000_000
    film = Image.open(io.BytesIO(content))
    assert film.n_frames == 49
    colours = []
    for index in (0, film.n_frames - 1):
        film.seek(index)
        shades = film.convert("RGB").getcolors(1 << 20)
        assert shades is not None
        colours.append({colour for _, colour in shades})
    assert (255, 255, 255) in colours[0]
    # At the end there are trails of all three operators.
    for red, green, blue in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x00, 0x9E, 0x73)):
        assert any(abs(r - red) + abs(g - green) + abs(b - blue) < 150 for r, g, b in colours[1])


def test_what_cannot_be_shown_is_refused(folders: dict[str, Path], tmp_path: Path):
    with pytest.raises(MacaronError, match=f"{MAX_TOKENS} are allowed"):
        build_data([folders["macaron"]], "the cat sits " * 100)
    with pytest.raises(MacaronError, match=r"the target has \d+ tokens"):
        build_data([folders["macaron"]], SENTENCE, target="the cat sits " * 100)
    short = translation(tmp_path / "short", "macaron-tiny", max_position_embeddings=8)
    with pytest.raises(MacaronError, match=r"8 are allowed \(the model's positions\)"):
        build_data([short], "the cat sits on the mat . where is it ?")
    with pytest.raises(UsageError, match="--target is for the decoder"):
        build_data([folders["bert"]], SENTENCE, target="a cat")
    with pytest.raises(UsageError, match="--target is for the decoder"):
        build_data([folders["macaron"]], SENTENCE, target="a cat", parts=["encoder"])
    for kind in ("macaron", "bert"):
        with pytest.raises(MacaronError, match="the sentence is not valid Unicode"):
            build_data([folders[kind]], "the cat \udcff")
    with pytest.raises(UsageError, match="has only an encoder"):
        build_data([folders["macaron"], folders["bert"]], SENTENCE, parts=["decoder"])
