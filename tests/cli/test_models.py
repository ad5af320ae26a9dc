"""``macaron models`` and ``macaron --help`` through the real command."""

import json
import subprocess
import sys

from forked import macaron_text


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return macaron_text(*arguments)


def test_json():
    done = run("models", "--vocab-size", "10000", "--json")
    assert done.returncode == 0, done.stderr
    sizes = {model["name"]: model["parameters"] for model in json.loads(done.stdout)["models"]}
    assert sizes["macaron-small-released"] == 36_683_776
    assert sizes["transformer-small-released"] == 36_665_344


def test_table():
    done = run("models")
    assert done.returncode == 0, done.stderr
    assert "macaron-bert-base-released" in done.stdout
    assert "1024+1024" in done.stdout


def test_usage_errors_exit_with_2():
    for arguments in (["models", "--vocab-size", "2"], ["nonsense"], ["models", "--vocabulary"]):
        done = run(*arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom macaron.cli import main\nsys.argv = ['macaron', '--help']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'scipy', 'matplotlib', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "models" in done.stdout


def test_version():
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("macaron 0.")
