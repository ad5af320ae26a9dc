"""The order of the rooms, and no import cycles between files."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "macaron"
#: Each of them may import only from those before it, and from the files beside the rooms.
ROOMS = (
    *("ode", "nn", "models", "text", "data", "decode", "evaluate", "train", "recipe", "tasks", "convert"),
    *("huggingface", "lab", "serve", "cli"),
)
#: Files beside the rooms, which import no room.
BESIDE = (
    *("errors", "settings", "files", "seal", "processes", "device", "shipped", "json_files"),
    "limits",
)
FILES = sorted(SOURCE.rglob("*.py"))


def module(path: Path) -> str:
    """``macaron.nn.layer`` for a file; ``macaron.nn`` for its ``__init__``."""
    parts = ("macaron", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(path): path for path in FILES}


def imports(path: Path, *, late: bool) -> Iterator[tuple[int, str]]:
    """Line and module of every import of ours, those for type checkers aside.

    :param late: those inside functions as well
    """
    todo: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not late:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "macaron")
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: relative import"
            if node.module and node.module.split(".")[0] == "macaron":
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    yield node.lineno, whole if whole in MODULES else node.module
        todo += ast.iter_child_nodes(node)


def room(name: str) -> str | None:
    """The room of a module, or its own name if it is beside the rooms; None for the package itself."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else None


def test_every_room_is_in_the_order():
    found = {room(name) for name in MODULES} - {None, "__main__"}
    assert found <= {*ROOMS, *BESIDE}


@pytest.mark.parametrize("name", ROOMS)
def test_rooms_import_only_from_rooms_above(name: str):
    allowed = {*BESIDE, *ROOMS[: ROOMS.index(name) + 1]}
    wrong = [
        f"{path.relative_to(SOURCE)}:{line} imports {imported}"
        for module_name, path in MODULES.items()
        if room(module_name) == name
        for line, imported in imports(path, late=True)
        if room(imported) not in {*allowed, None}
    ]
    assert not wrong, "\n".join(wrong)


def test_files_beside_the_rooms_import_no_room():
    wrong = [
        f"{name}.py:{line} imports {imported}"
        for name in BESIDE
        for line, imported in imports(MODULES[f"macaron.{name}"], late=True)
        if room(imported) not in BESIDE
    ]
    assert not wrong, "\n".join(wrong)


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """A cycle of a directed graph, or nothing."""
    done: set[str] = set()

    def search(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node not in done:
            for target in sorted(graph.get(node, ())):
                if found := search(target, [*path, node]):
                    return found
            done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := search(node, []))), [])


def test_cycles_are_found():
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}}) == []


@pytest.mark.parametrize("late", [False, True], ids=["at import", "late imports too"])
def test_no_import_cycles_between_files(late: bool):
    graph = {
        name: {imported for _, imported in imports(path, late=late) if imported != name}
        for name, path in MODULES.items()
        if name != "macaron"  # it hands names out when they are asked for
    }
    found = cycle(graph)
    assert not found, " -> ".join(found)
