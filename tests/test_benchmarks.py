"""The benchmarks through their real commands, on a corpus of a few sentences; and what they make of logs and traces."""

import importlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from macaron.data.prepare import prepare
from macaron.recipe import data_recipe

REPOSITORY = Path(__file__).resolve().parent.parent
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
RECIPE = """
[data]
out = "nowhere"
[model]
preset = "macaron-tiny"
hidden_size = 16
num_attention_heads = 2
intermediate_size = 32
encoder_layers = 1
decoder_layers = 1
[train]
batch_tokens = 128
warmup = 5
max_updates = 40
log_every = 4
[decode]
beam = 2
max_length = 8
"""


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch):
    """Imports a benchmark as a module; what they share is beside them."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    before = set(sys.modules)
    yield importlib.import_module
    for name in {"common", "gpu_training", "profile_step"} - before:
        sys.modules.pop(name, None)


# What they make of a log.


def line(update: int, time: float, **values: Any) -> dict[str, Any]:
    return {"update": update, "time": time, **values}


def test_speed_of_a_log(benchmark):
    # Compilation, then 1000 targets in each of 10 updates a second; a pause of 3 s that the pace leaves out.
    pace = {"tokens_per_second": 10_000.0}
    records = [
        line(10, 130.0, tokens_per_second=500.0),
        line(20, 131.0, memory_gib=2.5, **pace),
        line(20, 134.0, valid_loss=3.0),
        line(30, 135.0, memory_gib=3.5, **pace),
        line(40, 136.0, **pace),
        line(44, 136.4, **pace),
        line(46, 138.0, valid_loss=2.0, end=True),
    ]
    found = benchmark("gpu_training").speed(records, started=100.0, checkpoint_every=15)
    assert found["steady_tokens_per_second"] == 10_000
    assert found["sustained_seconds"] == pytest.approx(6.4)
    assert found["sustained_targets"] == pytest.approx(34_000, rel=1e-6)
    assert found["sustained_tokens_per_second"] == round(34_000 / 6.4)
    assert (found["validations_inside"], found["checkpoints_inside"]) == (1, 2)
    assert found["seconds_to_steady_state"] == 30.0
    assert found["seconds_to_first_steady_line"] == 31.0
    assert found["updates_per_second"] == pytest.approx(10.0)
    assert found["peak_memory_gib"] == 3.5
    counted = [record | {"targets": 500} if "tokens_per_second" in record else record for record in records]
    found = benchmark("gpu_training").speed(counted, started=100.0, checkpoint_every=15)
    assert found["sustained_targets"] == 2000


# What they make of a trace.


OTHERS = "norm, dropout, elementwise"


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT", "matrix products"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "matrix products"),
        ("triton_tem_fused_addmm_3", "matrix products"),
        ("aten::addmm", "matrix products"),
        ("aten::_mm", "matrix products"),
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "attention"),
        ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "attention"),
        ("triton_poi_fused_addmm_native_dropout_relu_4", OTHERS),
        (
            "triton_per_fused__scaled_dot_product_efficient_attention_add_native_layer_norm_2",
            "norm, dropout, elementwise",
        ),
        ("triton_poi_fused__to_copy_7", "copies and casts"),
        ("triton_red_fused__to_copy_gather_logsumexp_mean_0", "loss"),
        ("triton_poi_fused_embedding_mul_1", "embedding"),
        ("void at::native::(anonymous namespace)::vectorized_gather_kernel<16, long>", "embedding"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimiser"),
        ("Memcpy HtoD (Pinned -> Device)", "copies and casts"),
        ("void at::native::elementwise_kernel<128, 2, bfloat16_copy_kernel_cuda>", "copies and casts"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda>",
            "norm, dropout, elementwise",
        ),
    ],
)
def test_groups_of_kernels(name: str, group: str, benchmark):
    assert benchmark("profile_step").group_of(name) == group


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": 1, "args": args}


def test_kernels_belong_to_what_launched_them(benchmark):
    module = benchmark("profile_step")
    events = [
        event("cpu_op", "_SmoothedCrossEntropy", 10, 20),
        event("cuda_runtime", "cudaLaunchKernel", 12, 1, correlation=1),
        event("cuda_driver", "cuLaunchKernelEx", 14, 1, correlation=2),
        event("user_annotation", "Optimizer.step#AdamW.step", 40, 9),
        event("cuda_runtime", "cudaLaunchKernel", 41, 1, correlation=3),
        event("cuda_runtime", "cudaLaunchKernel", 60, 1, correlation=4),
        event("kernel", "reduce_kernel", 100, 5, correlation=1),
        event("kernel", "nvjet_a", 105, 5, correlation=2),
        event("kernel", "elementwise_kernel", 110, 5, correlation=3),
        event("kernel", "elementwise_kernel", 112, 8, correlation=4),
        event("kernel", "nvjet_b", 130, 5, correlation=4),
    ]
    slices = module.kernels(events)
    wanted = ["loss", "loss: matrix products", "optimiser", "norm, dropout, elementwise", "matrix products"]
    assert module.grouped(slices) == wanted
    assert module.busy(slices) == 25  # two of them overlap


def test_products_of_the_loss_in_a_graph(benchmark):
    module = benchmark("profile_step")
    names = ["nvjet_0", "norm", "norm", "norm", "nvjet_1", "triton_red_fused_gather_logsumexp_0", "norm", "nvjet_2"]
    names += ["norm", "norm", "norm", "norm", "nvjet_3"]
    events = [event("cuda_runtime", "cudaGraphLaunch", 0, 1, correlation=1)]
    events += [event("kernel", name, 10 + i, 1, correlation=1) for i, name in enumerate(names)]
    groups = dict(zip(names, module.grouped(module.kernels(events)), strict=True))
    assert [groups[f"nvjet_{i}"] for i in (1, 2)] == ["loss: matrix products"] * 2
    assert [groups[f"nvjet_{i}"] for i in (0, 3)] == ["matrix products"] * 2


def test_operators_without_those_they_call(benchmark):
    module = benchmark("profile_step")
    events = [event("cpu_op", "aten::linear", 0, 10), event("cpu_op", "aten::addmm", 2, 6), event("cpu_op", "b", 10, 1)]
    assert [(each.name, each.time) for each in module.operators(events)] == [
        ("aten::linear", 4),
        ("aten::addmm", 6),
        ("b", 1),
    ]


# The commands.


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe and a prepared corpus of Moses tokens."""
    folder, generator = tmp_path_factory.mktemp("digits"), random.Random(1)
    for name, count in (("train", 60), ("valid", 6), ("test", 9)):
        lines = [[str(generator.randrange(10)) for _ in range(generator.randint(2, 6))] for _ in range(count)]
        (folder / f"{name}.src").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{name}.tgt").write_text("".join(" ".join(line[::-1]) + "\n" for line in lines))
    settings = {"source_lang": "src", "target_lang": "tgt", "out": str(folder / "prepared"), "root": str(folder)}
    settings |= {"pipeline": "moses", "vocab_size": 40, "remove_duplicates": False, "remove_overlap": "none"}
    splits = {name: [{"path": name, "state": "moses"}] for name in ("train", "valid", "test")}
    prepare(data_recipe({"data": {**settings, **splits}}), workers=1)
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


def run(*arguments: object, where: Path) -> str:
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def measured(script: str, *arguments: object, where: Path) -> tuple[dict[str, Any], str]:
    """The JSON that a benchmark wrote, and what it printed. It leaves nothing else behind."""
    before = set(where.iterdir())
    options = ["--device", "cpu", "--out", "result.json"]
    said = run(REPOSITORY / "benchmarks" / script, *arguments, *options, where=where)
    assert set(where.iterdir()) - before <= {where / "result.json"}
    return json.loads((where / "result.json").read_text()), said


@pytest.mark.slow
def test_gpu_training(place: Path):
    options = ["--recipe", "recipe.toml", "--seconds", 60, "--peer-seconds", 0.1, "--peer-batches", 128]
    result, said = measured("gpu_training.py", "prepared", *options, "--validate-every", 10, where=place)
    ours = result["ours"]
    assert ours["exit_code"] == 0
    assert result["log"][-1]["final"]["update"] == 40  # all of the run, in the time
    assert ours["validations_inside"] >= 1
    assert ours["sustained_targets"] > 0
    assert next(iter(result)) == "ratios"
    assert set(result["ratios"]) == {"HF Marian, eager, 128", "nn.Transformer, eager, 128"}
    for peer in result["peers"].values():
        assert "error" not in peer
        assert peer["parameters"] == pytest.approx(ours["parameters"], rel=0.05)
    assert "| nn.Transformer, eager, 128" in said


@pytest.mark.slow
def test_gpu_decoding(place: Path, tmp_path: Path):
    trained = tmp_path / "run"
    run("-m", "macaron", "train", "recipe.toml", "--set", "data.out=prepared", "--out", trained, where=place)
    options = ["--first", 3, "--repeat", 2, "--peer-batch", 4, "--peer-seconds", 60]
    result, said = measured("gpu_decoding.py", trained, "prepared", *options, where=place)
    assert set(result["ours"]) == {"float32", "bfloat16"}
    for system in result["ours"].values():
        assert system["sentences"] == 9
        assert len(system["passes_seconds"]) == 2
        assert any(name.startswith("tokenised BLEU") for name in system["scores"])
    assert 0 <= result["identical"] <= 1
    assert set(result["cold"]["bfloat16"]) == {"seconds", "process_seconds"}
    assert not [peer["error"] for peer in result["peers"].values() if "error" in peer]
    marian = result["peers"]["HF Marian, bfloat16, batch 4"]
    assert (marian["batches_measured"], marian["extrapolated"]) == (3, False)
    assert "% of the translations in bfloat16 are those in float32" in said


@pytest.mark.slow
def test_profile_step(place: Path):
    options = ["--recipe", "recipe.toml", "--warm-up", 1, "--window", 2]
    result, said = measured("profile_step.py", "prepared", *options, where=place)
    times = result["milliseconds"]
    for group in ("matrix products", "loss", "loss: matrix products", "optimiser", "norm, dropout, elementwise"):
        assert times[group] > 0, group
    assert sum(times.values()) == pytest.approx(result["profiled_step_milliseconds"], rel=0.01)
    assert "| matrix products" in said


def test_joined_lines(place: Path):
    fixtures = REPOSITORY / "tests" / "compatibility" / "fixtures"
    files = ["--source", fixtures / "corpus" / "train.de", "--reference", fixtures / "corpus" / "train.en"]
    result, said = measured("joined_lines.py", fixtures / "translation", *files, where=place)
    assert (result["sentences"], result["lines"]) == (240, 48)
    bleu = result["bleu"]
    assert bleu["one to a line"] - bleu["split"] == pytest.approx(result["loss"], abs=0.002)
    assert bleu["split"] > bleu["whole"] + 5  # so small a model translates one sentence at best
    assert "| split " in said


@pytest.mark.slow
def test_serve(place: Path):
    fixtures = REPOSITORY / "tests" / "compatibility" / "fixtures"
    options = ["--quick", "--source", fixtures / "corpus" / "test.de"]
    result, said = measured("serve.py", fixtures / "translation", *options, where=place)
    assert result["throughput"]["identical"]
    assert result["throughput"]["sentences"] == 64
    overload = result["overload"]
    assert overload["requests"] == sum(overload["statuses"].values()) > 0
    assert (overload["hanging"], result["exit_code"]) == (0, 0)
    for name in ("vanishing clients", "malformed requests", "dawdling clients"):
        assert result["faults"][name]["usual_requests"] > 0
        assert result["faults"][name]["lost"] == 0
    assert "| Translator, batches" in said


@pytest.mark.slow
def test_plan_memory(place: Path):
    sizes = ("--pairs", 3000, 6000, "--out", "memory.json")
    said = run(REPOSITORY / "benchmarks" / "plan_memory.py", *sizes, where=place)
    result = json.loads((place / "memory.json").read_text())
    assert [row["pairs"] for row in result["rows"]] == [3000, 6000]
    small, large = result["rows"]
    assert large["target_tokens"] > 1.9 * small["target_tokens"] > 1.9 * 3000 * 4
    assert large["peak_resident_mib"] > 100
    assert "anonymous_mib" in said


@pytest.mark.slow
def test_study(place: Path):
    options = ["--set", "data.out=prepared", "--kinds", "lie-fg,word-dropout", "--seeds", 1, "--jobs", 2]
    said = run(REPOSITORY / "benchmarks" / "study.py", "recipe.toml", *options, "--out", "study", where=place)
    assert sorted(line.partition(",")[0] for line in said.splitlines()) == [
        "lie-fg-seed1: finished",
        "word-dropout-seed1: finished",
    ]
    compared = json.loads((place / "study" / "comparison.json").read_text())
    assert [len(kind["runs"]) for kind in compared["kinds"]] == [1, 1]
    assert json.loads((place / "study" / "study.json").read_text())["not finished"] == []
    said = run(
        REPOSITORY / "benchmarks" / "study.py", "recipe.toml", *options, "--minutes", 0, "--out", "late", where=place
    )
    assert said.count(": not finished") == 2
    assert len(json.loads((place / "late" / "study.json").read_text())["not finished"]) == 2


def test_bpe_dropout(place: Path):
    data = REPOSITORY / "tests" / "compatibility" / "fixtures" / "pairs"
    said = run(REPOSITORY / "benchmarks" / "bpe_dropout.py", data, "--out", "dropout.json", where=place)
    result = json.loads((place / "dropout.json").read_text())
    assert result["words"] > result["distinct_words"] > 10
    assert result["tokens_after"] > 1
    assert len(result["seconds_of_epochs"]) == 3
    assert "words_per_second" in said
