"""A user's own examples: TSV or CSV with a header, one or two columns of text and one of labels."""

import csv
import hashlib
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from macaron.errors import MacaronError, nearest, require
from macaron.files import read_lines
from macaron.limits import LONGEST_VALUE

Format = Literal["tsv", "csv"]
#: Squares of larger scores overflow.
LARGEST_SCORE = 1e100


@dataclass
class Table:
    """Examples of a file: one or two lists of texts, labels as in the file, and as class indices or scores (values).

    :param lines: the last line of each row
    :param skipped: lines of GLUE's files that are torn or have no agreed label
    """

    name: str
    texts: tuple[list[str], ...]
    labels: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.lines)

    def fingerprint(self) -> str:
        """A digest of texts and values, independent of path and compression."""
        digest = hashlib.sha256()
        for texts in self.texts:
            digest.update("\n".join(texts).encode("utf-8", "surrogatepass") + b"\0")
        digest.update(repr(self.values).encode())
        return digest.hexdigest()[:16]


def table_format(path: Path) -> Format | None:
    """The format by the file's name: ``.csv`` with commas and quotes, ``.tsv`` with tabs and no quotes; else None."""
    name = path.name.lower().removesuffix(".gz").removesuffix(".xz")
    return "csv" if name.endswith(".csv") else "tsv" if name.endswith(".tsv") else None


def rows_of(lines: Iterator[str], kind: Format, name: str) -> Iterator[tuple[int, list[str]]]:
    """The number of a row's last line and its values, header included."""
    if kind == "tsv":
        yield from ((number, line.split("\t")) for number, line in enumerate(lines, start=1))
        return
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader((f"{line}\n" for line in lines), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise MacaronError(f"{name}, line {reader.line_num}: not valid CSV ({error})") from None


def select(
    rows: Iterator[tuple[int, list[str]]], name: str, columns: Sequence[str], keep_empty: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """The values of some columns, named as in the first row; blank lines and, if not kept, empty rows are left out."""
    _, header = next(rows, (1, []))
    header = [title.strip() for title in header]
    require(any(header), f"{name}, line 1: no header. The first line must name the columns.")
    for wanted in columns:
        if wanted not in header:
            hint = nearest(wanted, header)
            hint += "" if hint.endswith("?") else "."
            if len(header) == 1 and "," in header[0]:
                hint += " The name of a file with commas must end in .csv."
            hint += " Name the columns with --text, --text2 and --label."
            raise MacaronError(f"{name}, line 1: no column {wanted!r} in the header{hint}")
        require(header.count(wanted) <= 1, f"{name}, line 1: {header.count(wanted)} columns are named {wanted!r}")
    indices = [header.index(wanted) for wanted in columns]
    for number, row in rows:
        if not any(row) and not (keep_empty and len(row) == len(header)):
            continue
        if len(row) != len(header):
            raise MacaronError(
                f"{name}, line {number}: {len(row)} columns, the header has {len(header)}. In a .csv, texts with "
                "commas are quoted; in a .tsv, texts have no tabs."
            )
        longest = max(map(len, row))
        if longest > LONGEST_VALUE:
            size = f"{longest:,} characters, the limit is {LONGEST_VALUE:,}"
            raise MacaronError(f"{name}, line {number}: a value has {size}")
        yield number, [row[index] for index in indices]


def read_table(path: Path, texts: Sequence[str], label: str | None) -> Table:
    """Read a file (plain, ``.gz``, ``.xz``)."""
    columns = [*texts, *([] if label is None else [label])]
    found = Table(str(path), tuple([] for _ in texts))
    for number, values in select(rows_of(read_lines(path), table_format(path) or "tsv", str(path)), str(path), columns):
        for column, value in zip(found.texts, values, strict=False):
            column.append(value)
        if label is not None:
            value = values[-1].strip()
            if not value:
                raise MacaronError(f"{path}, line {number}: the label is empty. Fill it in, or remove the line.")
            found.labels.append(value)
        found.lines.append(number)
    if not found.lines:
        raise MacaronError(f"{path}: no examples in this file, except perhaps a header")
    return found


def find_classes(table: Table) -> tuple[str, ...]:
    """The classes of a training set: whole numbers by value, others in alphabetical order."""
    classes = set(table.labels)
    require(len(classes) >= 2, f"{table.name}: all labels are {table.labels[0]!r}: need at least two classes")
    many = f"{table.name}: {len(classes):,} different labels in {len(table.labels):,} examples"
    few = len(classes) <= max(len(table.labels) // 2, 2)
    require(few, f"{many}. Give --regression if they are numbers to predict, or another --label.")
    whole = all(re.fullmatch(r"[+-]?\d{1,18}", label) for label in classes)
    return tuple(sorted(classes, key=lambda label: (int(label), label) if whole else (0, label)))


def class_indices(table: Table, classes: Sequence[str]) -> list[float]:
    """The labels as indices."""
    indices, known = {label: float(index) for index, label in enumerate(classes)}, ", ".join(classes)[:200]
    for number, label in zip(table.lines, table.labels, strict=True):
        if label not in indices:
            raise MacaronError(f"{table.name}, line {number}: the label {label!r} is not among the classes: {known}")
    return [indices[label] for label in table.labels]


def numbers_of(table: Table, low: float = -LARGEST_SCORE, high: float = LARGEST_SCORE) -> list[float]:
    """The labels as numbers from ``low`` to ``high``."""
    values = []
    for number, label in zip(table.lines, table.labels, strict=True):
        try:
            value = float(label)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            limits = f" from {low:g} to {high:g}" if high < LARGEST_SCORE else ", as --regression needs"
            raise MacaronError(f"{table.name}, line {number}: the score {label!r} is not a number{limits}")
        values.append(value)
    return values
