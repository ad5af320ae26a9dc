"""A model folder's tokenizer opens with transformers' AutoTokenizer in a fresh process."""

import subprocess
import sys
from pathlib import Path

import pytest

from macaron.huggingface import HFEncoderConfig, HFTokenizer, HFTranslationConfig
from macaron.text import MacaronTokenizer

GOLDEN = Path(__file__).parent.parent / "golden"

PROGRAM = """
import sys
if sys.argv[2] == "macaron first":
    import macaron
    assert "transformers" not in sys.modules, "import macaron is not light"
    from transformers import AutoTokenizer
else:
    from transformers import AutoTokenizer
    import macaron
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
print(type(tokenizer).__name__, tokenizer.kind, tokenizer.fingerprint(), tokenizer("tok0 tok3")["input_ids"])
"""


@pytest.mark.parametrize(("kind", "order"), [("translation", "macaron first"), ("encoder", "transformers first")])
def test_auto_tokenizer(tmp_path: Path, kind: str, order: str) -> None:
    name, config = {
        "translation": ("dict.txt", HFTranslationConfig(vocab_size=50)),
        "encoder": ("dict.bert.txt", HFEncoderConfig(vocab_size=50)),
    }[kind]
    tokenizer = MacaronTokenizer.from_fairseq_dict(GOLDEN / name, kind=kind)
    tokenizer.save_pretrained(tmp_path)
    config.save_pretrained(tmp_path)
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), order], check=True, capture_output=True, text=True
    ).stdout
    ids = HFTokenizer.wrap(tokenizer)("tok0 tok3")["input_ids"]
    assert output == f"MacaronTokenizer {kind} {tokenizer.fingerprint()} {ids}\n"


def test_text_room_is_light() -> None:
    program = (
        "import sys; from macaron.text import MacaronTokenizer; assert not {'transformers', 'torch'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
