"""One self-contained HTML page: it opens offline, loads nothing, and is the same bytes for the same input."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from macaron import __version__
from macaron.errors import UsageError
from macaron.files import write_text

#: The page may run its own scripts only: no script, font, image or request from anywhere else.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

#: The maximum number of rows that are shown as lists on a phone: more would fill screens.
STACKED = 4


def asset(name: str) -> str:
    """The text of a file in lab/assets."""
    return (files("macaron.lab") / "assets" / name).read_text(encoding="utf-8")


def note(page: str, name: str, **values: object) -> str:
    """A text of a page, from PAGE-notes.json in lab/assets."""
    return str(json.loads(asset(f"{page}-notes.json"))[name]).format(**values)


def fill(template: str, **values: object) -> Markup:
    """A Jinja template of lab/assets with these values, which are escaped unless they are `Markup`.

    Pages extend page.html, which takes ``title``, ``body``, ``lead``; ``styles`` and ``scripts``, files in lab/assets
    beside base.css and base.js; and ``data``: a script reads ``data[NAME]`` with ``macaron.data("NAME")``.
    """
    return Markup(_templates().get_template(template).render(values))


@cache
def _templates() -> Environment:
    how: dict[str, Any] = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    how |= {"keep_trailing_newline": True, "extensions": ["jinja2.ext.do"]}
    made = Environment(loader=FunctionLoader(asset), **how)
    made.globals |= {"section": section, "html_table": html_table, "json": script_json, "policy": POLICY}
    made.globals |= {"asset": lambda name: Markup(asset(name)), "version": __version__}
    return made


def section(heading: str, *parts: str, id: str | None = None, caller: Callable[[], str] = str) -> Markup:
    """A section with an h2 heading that labels it; ``parts`` are HTML. In templates its content is that of the call."""
    name = id or re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "section"
    head = '<section id="{0}" aria-labelledby="{0}-heading">\n<h2 id="{0}-heading">{1}</h2>'
    return Markup("\n".join([Markup(head).format(name, heading), *parts, caller(), "</section>"]))


def html_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    caption: str,
    numeric: Collection[int] = (),
    stack: bool = False,
) -> Markup:
    """A table whose first column names its rows; columns in ``numeric`` are right-aligned. Cells are escaped.

    A table wider than the page scrolls horizontally, and says so.

    :param stack: on a phone, show each row as a list of column names and values: for tables with many columns. A table
        with more than `STACKED` rows scrolls instead.
    """
    rows = list(rows)
    stack = stack and len(rows) <= STACKED
    return fill("table.html", headers=headers, rows=rows, caption=caption, numeric=numeric, stack=stack)


def check_page_path(path: Path) -> None:
    """Refuse a path that cannot be a page, before any work is done for it."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{path}: a page is FILE.html")
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file in it, such as {path / 'page.html'}")


def write_page(path: Path, text: str) -> None:
    """Write a page atomically."""
    check_page_path(path)
    write_text(path, text)


def script_json(value: object) -> Markup:
    """JSON inside a script: no text can end the script ("<" is escaped), and null stands for NaN, which JSON lacks."""
    finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
    return Markup(json.dumps(finite, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c"))
