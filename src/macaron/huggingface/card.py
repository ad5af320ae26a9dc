"""The model card on its way to a hub, where transformers would upload one of its own that says nothing."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError

from macaron.files import atomic_file
from macaron.models.load import CARD, has_own_card


def read_card(*folders: str | Path) -> bytes | None:
    """The model card of the first of these folders that has one."""
    found = [Path(folder, CARD) for folder in folders if folder]
    return next((path.read_bytes() for path in found if path.is_file()), None)


def write_card(folder: str | Path, card: bytes | None) -> None:
    """Write a model card, if there is one."""
    if card is not None:
        with atomic_file(Path(folder, CARD)) as file:
            file.write(card)


def card_to_upload(folder: str | Path, card: bytes | None, repository: str, token: Any) -> None:
    """Put a model card in the place of the one that transformers is about to upload.

    What users have written or edited in the repository stays. Tags that transformers was asked to add are added.
    """
    if card is None:
        return
    with suppress(EntryNotFoundError):
        if has_own_card(Path(hf_hub_download(repository, CARD, token=token)).parent):
            return
    other = read_card(folder)
    if other is not None and (tags := ModelCard(other.decode()).data.tags):
        own = ModelCard(card.decode())
        own.data.tags = list(dict.fromkeys([*(own.data.tags or []), *tags]))
        card = str(own).encode()
    write_card(folder, card)
