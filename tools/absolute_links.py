"""Print a page with its relative links made absolute, for places that have no files beside it, such as PyPI.

    python tools/absolute_links.py README.md https://HOST/OWNER/macaron/blob/v0.1.0 > PAGE.md

Pictures are linked as ``...?raw=true``, which GitHub serves as files. The paths in README are relative to the
repository, so that they also work in a clone and offline.
"""

import re
import sys
from pathlib import Path

#: A link or picture of Markdown: ``[text](target)`` or ``![text](target)``.
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def relative_links(text: str) -> list[str]:
    """The targets of a page's links that are paths, without their anchors."""
    targets = (match[3] for match in LINK.finditer(text))
    return [target.partition("#")[0] for target in targets if not re.match(r"\w+:|#", target)]


def absolute(text: str, base: str) -> str:
    """The page with its links below a base address."""

    def replace(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        if re.match(r"\w+:|#", target):
            return match[0]
        return f"{picture}[{label}]({base.rstrip('/')}/{target}{'?raw=true' if picture else ''})"

    return LINK.sub(replace, text)


if __name__ == "__main__":
    page, base = sys.argv[1:]
    print(absolute(Path(page).read_text(encoding="utf-8"), base), end="")
