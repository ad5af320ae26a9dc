"""Upload to a hub and load from it: transformers' own functions, huggingface_hub's own client, a server on loopback."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hub import TOKEN, Hub, running

FIXTURES = Path(__file__).parents[1] / "compatibility" / "fixtures"
CARD = "---\nlicense: mit\ntags:\n- mine\n---\n\n# A model of mine\n"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as made:
        yield made


def client(hub: Hub, home: Path, code: str, folder: Path) -> str:
    """Run code in a process of its own, which knows no other hub; ``FOLDER`` is a path."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    environment |= {"HF_ENDPOINT": hub.address, "HF_HOME": str(home), "HF_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    # Xet, the hub's other way to store large files, is a service of its own.
    environment |= {
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    program = f"FOLDER = {str(folder)!r}\nimport macaron\n{code}"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not hub.unknown, hub.unknown
    return done.stdout


LOAD = """
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
def translated(name):
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    batch = tokenizer(["Das ist gut.", "Ein Hund"], return_tensors="pt", padding=True)
    return tokenizer.batch_decode(model.generate(**batch, num_beams=3, max_new_tokens=12))
"""


@pytest.mark.slow
def test_push_and_load(hub: Hub, tmp_path: Path):
    folder = Path(shutil.copytree(FIXTURES / "translation", tmp_path / "model"))
    (folder / "README.md").write_text(CARD)
    code = """
model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)
tokenizer.push_to_hub("me/model")
model.push_to_hub("me/model", tags=["asked"])
assert translated("me/model") == translated(FOLDER)
import json; print(json.dumps(translated("me/model")))
"""
    first = client(hub, tmp_path / "one", LOAD + code, folder)
    files = hub.files("me/model")
    names = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert set(files) == {*names, "README.md", "digests.json", ".gitattributes"}
    # The weights went by LFS.
    assert any(each.startswith("PUT /lfs/") for each in hub.requests)
    assert list(hub.objects.values()) == [files["model.safetensors"]]
    # The card is the user's, with the tag that was asked for.
    metadata = yaml.safe_load(files["README.md"].split(b"---")[1])
    assert metadata == {"license": "mit", "tags": ["mine", "asked"]}
    assert files["README.md"].endswith(b"# A model of mine\n")
    # What is recorded is what was uploaded.
    digests = json.loads(files["digests.json"])["files"]
    assert set(digests) == {"config.json", "generation_config.json", "model.safetensors"}
    assert all(hashlib.sha256(files[name]).hexdigest() == entry["sha256"] for name, entry in digests.items())
    # Another user, with nothing in the cache.
    hub.requests.clear()
    again = client(hub, tmp_path / "two", LOAD + "import json; print(json.dumps(translated('me/model')))", folder)
    assert (again, json.loads(again)) == (first, json.loads(first))
    assert any(each.endswith("/model.safetensors") and each.startswith("GET") for each in hub.requests)


@pytest.mark.slow
def test_cards_on_the_way(hub: Hub, tmp_path: Path):
    """A card that training wrote is replaced by that of a new model; what a user wrote in the repository stays."""
    code = """
from pathlib import Path
from huggingface_hub import HfApi
from macaron.models.load import write_card
model = AutoModelForSeq2SeqLM.from_pretrained(FOLDER)
model.push_to_hub("me/none")
for text in ("# First\\n", "# Second\\n"):
    write_card(Path(FOLDER), text)
    AutoModelForSeq2SeqLM.from_pretrained(FOLDER).push_to_hub("me/cards")
    assert text.encode() in Path(FOLDER, "README.md").read_bytes()
HfApi().upload_file(path_or_fileobj=b"# Edited there\\n", path_in_repo="README.md", repo_id="me/cards")
model = AutoModelForSeq2SeqLM.from_pretrained(FOLDER)
model.push_to_hub("me/cards")
other = Path(FOLDER).with_name("other")
model.save_pretrained(other, push_to_hub=True, repo_id="me/saved")
model.save_pretrained(FOLDER, push_to_hub=True, repo_id="me/cards")
assert Path(FOLDER, "README.md").read_bytes() == Path(other, "README.md").read_bytes()
assert b"# Second" in Path(FOLDER, "README.md").read_bytes()
"""
    folder = Path(shutil.copytree(FIXTURES / "translation", tmp_path / "model"))
    client(hub, tmp_path / "home", LOAD + code, folder)
    cards = [files.get("README.md", b"") for _, files in hub.repositories["me/cards"]]
    titles = [next((line for line in card.splitlines() if line.startswith(b"# ")), b"") for card in cards]
    assert titles == [b"", b"# First", b"# Second", *[b"# Edited there"] * 3]
    saved = hub.files("me/saved")
    assert b"# Second" in saved["README.md"]
    recorded = json.loads(saved["digests.json"])["files"]["model.safetensors"]["sha256"]
    assert recorded == hashlib.sha256(saved["model.safetensors"]).hexdigest()
    assert b"transformers" in hub.files("me/none")["README.md"]  # its own, where we have none


@pytest.mark.slow
def test_a_folder_as_it_is(hub: Hub, tmp_path: Path):
    """The whole folder uploaded: digests and card are those of the folder, and all is verified."""
    folder = Path(shutil.copytree(FIXTURES / "classifier", tmp_path / "model"))
    (folder / "README.md").write_text(CARD)
    code = """
from huggingface_hub import create_repo, snapshot_download, upload_folder
from macaron.seal import damaged, seal
from pathlib import Path
seal(FOLDER)
create_repo("me/folder")
upload_folder(folder_path=FOLDER, repo_id="me/folder")
copy = Path(snapshot_download("me/folder"))
assert not damaged(copy)
from transformers import pipeline
texts = ["the cat sat", "good house"]
assert pipeline("text-classification", "me/folder")(texts) == pipeline("text-classification", FOLDER)(texts)
from macaron.tasks.classifier import Predictor
assert Predictor(copy, "cpu").predict([texts]) == Predictor(Path(FOLDER), "cpu").predict([texts])
"""
    client(hub, tmp_path / "home", code, folder)
    on_disk = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name: each for name, each in hub.files("me/folder").items() if name != ".gitattributes"} == on_disk


@pytest.mark.slow
def test_without_macaron_the_type_is_unknown(hub: Hub, tmp_path: Path):
    """What the documentation says: import macaron first."""
    client(
        hub,
        tmp_path / "home",
        "from huggingface_hub import create_repo, upload_folder\n"
        "create_repo('me/folder'); upload_folder(folder_path=FOLDER, repo_id='me/folder')",
        FIXTURES / "translation",
    )
    code = "from transformers import AutoModelForSeq2SeqLM\nAutoModelForSeq2SeqLM.from_pretrained('me/folder')"
    for first, right in (("", False), ("import macaron\n", True)):
        environment = {**os.environ, "HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "other")}
        done = subprocess.run(
            [sys.executable, "-c", first + code], env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode == 0) == right
        assert right or "macaron-translation" in done.stderr
