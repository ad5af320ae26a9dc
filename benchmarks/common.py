"""What the benchmarks share: peers of our model's shape, tables, JSON with its environment."""

import json
import math
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.models import TranslationConfig
from macaron.text.vocabulary import EOS, PAD, UNK


@dataclass(frozen=True)
class Shape:
    """What a peer has to have in common with our model to be of its size."""

    vocab_size: int
    hidden_size: int
    heads: int
    inner_size: int
    encoder_layers: int
    decoder_layers: int
    dropout: float
    attention_dropout: float
    activation_dropout: float
    pre_norm: bool
    positions: int

    @classmethod
    def of(cls, config: TranslationConfig) -> "Shape":
        """The shape of a configuration of ours."""
        return cls(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            heads=config.num_attention_heads,
            inner_size=config.intermediate_size,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            dropout=float(config.dropout),
            attention_dropout=float(config.attention_dropout),
            activation_dropout=float(config.activation_dropout),
            pre_norm=config.norm == "pre",
            positions=config.max_position_embeddings,
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def marian(shape: Shape) -> Any:
    """HF Marian of that shape with random weights (its layers are post-norm whatever the shape says)."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=shape.vocab_size,
        d_model=shape.hidden_size,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.inner_size,
        decoder_ffn_dim=shape.inner_size,
        max_position_embeddings=shape.positions,
        dropout=shape.dropout,
        attention_dropout=shape.attention_dropout,
        activation_dropout=shape.activation_dropout,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=EOS,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config)


def ctranslate2_marian(model: Any, device: torch.device, compute_type: str) -> tuple[Any, list[str]]:
    """That Marian in CTranslate2, and the names of its tokens by id (one less: Marian's last is its padding)."""
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    spec = MarianMTLoader().get_model_spec(model)
    names = {PAD: "<pad>", EOS: "</s>", UNK: "<unk>"}
    vocabulary = [names.get(i, f"t{i}") for i in range(model.config.vocab_size - 1)]
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.eos_token = spec.config.decoder_start_token = names[EOS]
    spec.config.unk_token = names[UNK]
    spec.validate()
    spec.optimize(quantization=None)
    with tempfile.TemporaryDirectory(prefix="macaron-benchmark-") as folder:
        spec.save(folder)
        return ctranslate2.Translator(folder, device=device.type, compute_type=compute_type), vocabulary


class PlainTransformer(nn.Module):
    """nn.Transformer with what it lacks to translate: a shared embedding, sines for positions, the output."""

    sines: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.hidden_size
        self.embedding = nn.Embedding(shape.vocab_size, width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.drop, self.scale = nn.Dropout(shape.dropout), math.sqrt(width)
        angles = torch.arange(shape.positions).unsqueeze(1) * torch.exp(
            torch.arange(0, width, 2) * (-math.log(10000.0) / width)
        )
        self.register_buffer("sines", torch.cat([angles.sin(), angles.cos()], dim=1), persistent=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nested tensors, which training does not use
            self.body = nn.Transformer(
                width,
                shape.heads,
                shape.encoder_layers,
                shape.decoder_layers,
                shape.inner_size,
                dropout=shape.dropout,
                batch_first=True,
                norm_first=shape.pre_norm,
            )
        for module in self.body.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = shape.attention_dropout

    def embed(self, ids: Tensor) -> Tensor:
        return self.drop(self.embedding(ids) * self.scale + self.sines[: ids.shape[1]])

    def forward(self, source: Tensor, previous: Tensor) -> Tensor:
        nothing = source == PAD
        size = previous.shape[1]
        later = torch.ones(size, size, dtype=torch.bool, device=source.device).triu(1)
        # Padding of the targets is at their end, where the triangle hides it already.
        states = self.body(
            self.embed(source),
            self.embed(previous),
            tgt_mask=later,
            src_key_padding_mask=nothing,
            memory_key_padding_mask=nothing,
            tgt_is_causal=True,
        )
        return F.linear(states, self.embedding.weight)


def trained_parameters(model: nn.Module) -> int:
    """Parameters that learn; tables of sines do not."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def choose_device(name: str) -> torch.device:
    """``auto`` is the GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else torch.device(name)


def wait(device: torch.device) -> None:
    """Until the device has done what it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def reset_peak(device: torch.device) -> None:
    """Forget the largest memory so far."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_gib(device: torch.device) -> float | None:
    """The most memory that PyTorch held since then, in GiB, as a run's log has it; None on a CPU."""
    return round(torch.cuda.max_memory_reserved(device) / 2**30, 2) if device.type == "cuda" else None


def environment(device: torch.device) -> dict[str, Any]:
    """Where and when a number was measured."""
    packages = {}
    for name in ("macaron-net", "torch", "transformers", "tokenizers", "triton", "ctranslate2"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "device": device.type,
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "cuda": torch.version.cuda,
        "packages": packages,
    }


def command() -> str:
    """The command that is running, for the JSON."""
    return " ".join(["python", "benchmarks/" + Path(sys.argv[0]).name, *sys.argv[1:]])


def write_json(path: Path, result: dict[str, Any]) -> None:
    """Write the numbers; called after every part, so that what is measured is kept whatever comes later."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Markdown table with aligned columns: the first to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in [headers, *rows]) for column in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        aligned = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return f"| {' | '.join([cells[0].ljust(widths[0]), *aligned])} |"

    print(line(headers))
    print("|".join(["", "-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:]), ""]))
    for row in rows:
        print(line(row))
    sys.stdout.flush()


def number(value: float | None, form: str = ",.0f") -> str:
    """A number for a table; a dash if there is none."""
    return "-" if value is None else format(value, form)


def failure(error: Exception) -> str:
    """What went wrong with a peer: the others are measured all the same."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{type(error).__name__}: {first[:300]}"
