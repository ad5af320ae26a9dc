"""``macaron doctor``: whether this machine can train and translate."""

from pathlib import Path

import typer


def doctor() -> None:
    """Check this machine: versions, GPU, threads, disk, a tiny training and translation. Takes a few seconds."""
    from macaron.lab.doctor import examine

    failed = False
    for found in examine(Path.cwd()):
        typer.echo(f"{found.state:5} {found.text}" + (f"\n      -> {found.remedy}" if found.remedy else ""))
        failed |= found.state == "fail"
    if failed:
        raise typer.Exit(1)
