"""Files that grow in steps, and over several processes: those of a corpus that a model translates."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from macaron.errors import MacaronError
from macaron.files import alone, refusing, write_json
from macaron.json_files import read_json
from macaron.locks import LOCK


class GrowingFiles:
    """Files that grow together in steps, in one process or in several after each other: ``PATH.part``, then ``PATH``.

    What a step has written is on the disk before it is noted: a process that is killed loses its last step at most.

    :param note: JSON file with the sizes after the last step, and with what else the caller notes
    :param kind: the type of its content
    """

    def __init__(self, paths: Sequence[Path], note: Path, kind: Any) -> None:
        self.paths, self.note = paths, note
        self.parts = [path.with_name(f"{path.name}.part") for path in paths]
        #: What the last step noted.
        self.noted: dict[str, Any] = {}
        if note.exists():
            self.noted = read_json(note, kind, "Choose another path.")
        self._sizes: list[int] = self.noted.get("sizes", [0] * len(paths))
        self.complete: bool = self.noted.get("complete", False)
        if len(self._sizes) != len(paths):
            raise MacaronError(f"{note} notes {len(self._sizes)} files, not {len(paths)}. Choose another path.")

    @contextmanager
    def growing(self) -> Iterator[None]:
        """The files, open to be added to. They get their names if the block succeeds."""
        with ExitStack() as stack:
            stack.enter_context(alone(self.note, self.note.with_name(f".{self.note.name}{LOCK}")))
            with refusing(self.note):
                self._files = [stack.enter_context(part.open("ab")) for part in self.parts]
            for part, file, size in zip(self.parts, self._files, self._sizes, strict=True):
                if os.fstat(file.fileno()).st_size < size:
                    raise MacaronError(f"{part} lacks what {self.note} notes. Remove both, and begin again.")
                file.truncate(size)
                file.seek(size)
            yield
        self._write_note(complete=True)
        self.put_in_place()

    def add(self, contents: Sequence[bytes], noted: dict[str, Any]) -> None:
        """Add to each file, and note what is needed to go on from here."""
        with refusing(self.note):
            for file, content in zip(self._files, contents, strict=True):
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        self.noted = noted
        self._sizes = [file.tell() for file in self._files]
        self._write_note(complete=False)

    def put_in_place(self) -> None:
        """Name complete files, those too that a killed process did not come to."""
        for part, path in zip(self.parts, self.paths, strict=True):
            if part.exists():
                part.replace(path)

    def _write_note(self, complete: bool) -> None:
        self.complete = complete
        self.noted = {**self.noted, "sizes": self._sizes, "complete": complete}
        write_json(self.note, self.noted)
