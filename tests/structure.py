"""How the source is built, in figures: `python -m tests.structure` prints them as a table.

Owns what is counted. A file's lines are all its lines. A function's are those from `def` to its
end, docstring included, decorators not. An import cycle is one among siblings: modules and packages
that lie directly in the same package, where an import of a package's module counts as one of the
package. So a package may use what lies beside it, and not what uses it in turn. Imports for the
type checker count like others.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import grimp

ROOT = Path(__file__).parents[1]
FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 60


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method, nested ones too."""

    name: str
    """MODULE:QUALIFIED.NAME."""
    lines: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One module of the source."""

    module: str
    package: str
    """Where it is counted: a root package, or a package directly in one."""
    lines: int
    functions: tuple[Function, ...]


def root_packages() -> list[str]:
    """The import packages of the source, as the import contracts list them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    roots: list[str] = settings["tool"]["importlinter"]["root_packages"]
    return roots


def source_files() -> list[SourceFile]:
    """Every module of the source, in the order of their names."""
    found = []
    for root in root_packages():
        (place,) = ROOT.glob(f"*/{root}")
        for path in place.rglob("*.py"):
            parts = path.relative_to(place.parent).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
                package = parts[:2]
            else:
                package = parts[:-1][:2]
            found.append(_source_file(".".join(parts), ".".join(package), path.read_text()))
    return sorted(found, key=lambda file: file.module)


def _source_file(module: str, package: str, text: str) -> SourceFile:
    functions = tuple(_functions(ast.parse(text), f"{module}:"))
    return SourceFile(module, package, len(text.splitlines()), functions)


def _functions(node: ast.AST, prefix: str) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            assert child.end_lineno is not None
            yield Function(prefix + child.name, child.end_lineno - child.lineno + 1)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def import_cycles() -> list[frozenset[str]]:
    """Groups of siblings that import each other in a circle, directly or by way of others."""
    graph = grimp.build_graph(*root_packages(), cache_dir=None)
    imports: dict[str, set[str]] = {}
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            ends = _siblings(importer, imported)
            if ends is not None:
                imports.setdefault(ends[0], set()).add(ends[1])
    return list(_cycles(imports))


def _siblings(importer: str, imported: str) -> tuple[str, str] | None:
    """The modules or packages below the nearest common package; None: one holds the other."""
    here, there = importer.split("."), imported.split(".")
    for depth, (a, b) in enumerate(zip(here, there, strict=False), 1):
        if a != b:
            return ".".join(here[:depth]), ".".join(there[:depth])
    return None


def _cycles(imports: Mapping[str, set[str]]) -> Iterator[frozenset[str]]:
    """The strongly connected components that have more than one member."""
    reached = {name: _reached(imports, name) for name in imports}
    seen: set[str] = set()
    for name in sorted(imports):
        members = {other for other in reached[name] if name in reached.get(other, ())}
        if members and name not in seen:
            seen |= members
            yield frozenset(members)


def _reached(imports: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for name in imports.get(waiting.pop(), set()) - found:
            found.add(name)
            waiting.append(name)
    return found


def table() -> str:
    """A row for each package, and one for all of them, in Markdown."""
    files = source_files()
    cycles = import_cycles()
    packages = sorted({file.package for file in files})
    rows = [
        _row(f"`{package}`", [file for file in files if file.package == package], cycles)
        for package in packages
    ]
    head = (
        "package",
        "files",
        "lines",
        "largest file",
        "functions",
        "median lines of a function",
        f"over {FUNCTION_LINES_MAX}",
        "import cycles",
    )
    lines = [head, ("---",) * len(head), *rows, _row("all", files, cycles)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(title: str, files: list[SourceFile], cycles: list[frozenset[str]]) -> tuple[str, ...]:
    largest = max(files, key=lambda file: file.lines)
    lengths = [function.lines for file in files for function in file.functions]
    modules = {file.module for file in files}
    return (
        title,
        str(len(files)),
        str(sum(file.lines for file in files)),
        f"{largest.lines} (`{largest.module.rpartition('.')[2]}`)",
        str(len(lengths)),
        f"{median(lengths or [0]):g}",
        str(sum(length > FUNCTION_LINES_MAX for length in lengths)),
        str(sum(not cycle.isdisjoint(modules) for cycle in cycles)),
    )


if __name__ == "__main__":
    print(table())
