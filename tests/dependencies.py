"""The libraries of the project: what pyproject.toml declares, and what the source imports.

`python -m tests.dependencies` is for an environment of lowest versions. It fails unless every
library is installed in the version that its lower bound names:

    uv venv .lowest
    uv pip install --python .lowest --resolution lowest-direct -e '.[dev,fuzz]'
    .lowest/bin/python -m tests.dependencies

Owns both lists. `test_dependencies` compares them, and takes every imported name from the installed
libraries; it runs in an environment of newest and in one of lowest versions.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackagePath, distribution, packages_distributions, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
DISTRIBUTION = "millrace"
SOURCE = ("protocol", "server", "clients", "spark_connector")
"""The folders of what is installed."""
PROGRAMS = ("tests", "benchmarks", "examples", "manual")
"""The folders of what runs from a checkout."""
_OWN = {*PROGRAMS, "millrace", "pyspark_millrace"}
_COMPILED = "millrace_native"
"""A distribution of its own, which nothing needs."""


@dataclass(frozen=True, slots=True, order=True)
class Import:
    """A name that a file takes from a library."""

    library: str
    """The distribution, by its canonical name."""
    module: str
    name: str | None
    """None: the module itself."""
    package: str
    """The import package that has the file, or the folder of a program."""


@cache
def requirements() -> Mapping[str, tuple[Requirement, ...]]:
    """The declared libraries: of the base installation under "", of each extra under its name.

    Leaves out an extra's references to other extras.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {"": project["dependencies"], **project["optional-dependencies"]}
    return {
        extra: tuple(
            each for each in map(Requirement, texts) if canonicalize_name(each.name) != DISTRIBUTION
        )
        for extra, texts in declared.items()
    }


def names(*extras: str) -> set[str]:
    """The canonical names of the libraries of extras; "" is the base installation."""
    return {canonicalize_name(each.name) for extra in extras for each in requirements()[extra]}


def lower_bound(requirement: Requirement) -> Version | None:
    """The lowest version that a requirement allows, where it says so."""
    bounds = [
        Version(each.version)
        for each in requirement.specifier
        if each.operator in (">=", "==", "~=")
    ]
    return max(bounds, default=None)


def imports(*folders: str) -> frozenset[Import]:
    """What the files in these folders take from libraries, also within functions.

    Leaves out what only type checkers import.
    """
    return frozenset().union(*map(_imports, folders))


@cache
def _imports(folder: str) -> frozenset[Import]:
    found: set[Import] = set()
    for path in sorted((ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        package = folder if folder in PROGRAMS else parts[1].removesuffix(".py")
        for module, name in _imported(ast.parse(path.read_text())):
            top = module.partition(".")[0]
            if top not in sys.stdlib_module_names and not _is_own(top):
                found.add(Import(_library(module, name), module, name, package))
    return frozenset(found)


def _is_own(top: str) -> bool:
    return top != _COMPILED and (top in _OWN or top.startswith("millrace_"))


def _imported(tree: ast.AST) -> Iterator[tuple[str, str | None]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            for alias in node.names:
                yield node.module, alias.name
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            for each in node.orelse:
                yield from _imported(ast.Module([each], []))
        else:
            yield from _imported(node)


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


@cache
def _library(module: str, name: str | None) -> str:
    """The distribution of a module; one that is not installed has the top-level module's name.

    Several distributions share a namespace package: then it is the one that has the file.
    """
    top = module.partition(".")[0]
    found = sorted(set(_distributions().get(top, [top])))
    if len(found) > 1:
        stems = [each.replace(".", "/") for each in (f"{module}.{name}", module)]
        files = {f"{stem}{end}" for stem in stems for end in (".py", "/__init__.py")}
        found = [each for each in found if not files.isdisjoint(map(str, _files(each)))] or found
    return canonicalize_name(found[0])


def _files(library: str) -> list[PackagePath]:
    return distribution(library).files or []


def is_lowest(installed: str, bound: Version) -> bool:
    """Whether a version is that of a bound, or a release of it with more parts.

    >>> is_lowest("24.1.0.20240626", Version("24.1"))
    True
    >>> is_lowest("24.2", Version("24.1"))
    False
    """
    release = Version(installed).release
    wanted = bound.release
    return release[: len(wanted)] == wanted or Version(installed) == bound


def differences(installed: Mapping[str, str]) -> list[str]:
    """A sentence for each library of others that is not installed in its lowest version."""
    found = []
    declared = {each for some in requirements().values() for each in some}
    for each in sorted(declared, key=str):
        if canonicalize_name(each.name) == canonicalize_name(_COMPILED):
            continue
        bound = lower_bound(each)
        if bound is None:
            found.append(f"{each} has no lower bound")
        elif not is_lowest(installed[each.name], bound):
            found.append(f"{each} is installed in version {installed[each.name]}")
    return found


class _Installed(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return version(name)


def main() -> int:
    """Prints the libraries that are not installed in their lowest versions; 0 if there are none."""
    found = differences(_Installed())
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
