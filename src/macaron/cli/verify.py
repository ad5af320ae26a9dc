"""``macaron verify``: whether the files of a folder are as they were written."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from macaron.errors import MacaronError, command_line


def verify(
    folder: Annotated[Path, Argument(help="A model, a run, a checkpoint or a prepared folder.")],
    accept: Annotated[bool, Option("--accept", help="Record the files as they are now, after editing one.")] = False,
) -> None:
    """Check the files of a folder against the digests that were recorded when it was written (digests.json)."""
    from macaron.seal import DIGESTS, damaged, folders_within, recorded, seal

    wrong = checked = 0
    for each in folders_within(folder):
        try:
            entries = recorded(each)
            faults = damaged(each, again=True)
        except MacaronError as error:  # the digests themselves
            entries, faults = {}, {DIGESTS: str(error)}
        for name, fault in faults.items():
            typer.echo(f"{each / name}: {fault}{', accepted' if accept else ''}")
        if accept:
            seal(each)
            entries, faults = recorded(each), {}
        if entries is None:
            typer.echo(f"{each}: no {DIGESTS} (written by another program, or by an earlier version)")
            continue
        size = sum(entry["bytes"] for entry in entries.values())
        found = "recorded" if accept else f"{len(faults)} damaged" if faults else "unchanged"
        typer.echo(f"{each}: {len(entries)} files, {size:,} bytes: {found}")
        wrong, checked = wrong + len(faults), checked + 1
    remedy = f"to record them as they are: {command_line('verify', str(folder), '--accept')}"
    if wrong:
        raise MacaronError(f"{wrong} damaged. Copy the files again; if they were changed on purpose, {remedy}")
    if not checked:
        raise MacaronError(f"{folder}: there are no digests to compare the files with; {remedy}")
