"""The source keeps its shape: no large file, no long function, no import cycle.

An exception is the name of a module or function beyond a limit. The tests fail when an exception is
not needed, so the lists only shrink. Names are without their package, so that a move keeps them.
"""

from __future__ import annotations

from pathlib import Path

from tests import conftest
from tests.structure import (
    FILE_LINES_MAX,
    FUNCTION_LINES_MAX,
    import_cycles,
    root_packages,
    source_files,
    table,
)

LARGE_FILES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()


def _name(module: str) -> str:
    return module.rpartition(".")[2]


def test_no_file_is_larger_than_the_limit() -> None:
    large = {_name(file.module) for file in source_files() if file.lines > FILE_LINES_MAX}
    assert large - LARGE_FILES == set(), f"split each below {FILE_LINES_MAX} lines"
    assert LARGE_FILES - large == set(), "remove what is within the limit from LARGE_FILES"


def test_no_function_is_longer_than_the_limit() -> None:
    long = {
        function.name.rpartition(":")[2]
        for file in source_files()
        for function in file.functions
        if function.lines > FUNCTION_LINES_MAX
    }
    assert long - LONG_FUNCTIONS == set(), f"split each below {FUNCTION_LINES_MAX} lines"
    assert LONG_FUNCTIONS - long == set(), "remove what is within the limit from LONG_FUNCTIONS"


def test_no_package_and_no_module_imports_itself_by_way_of_its_siblings() -> None:
    cycles = {frozenset(map(_name, cycle)) for cycle in import_cycles()}
    assert cycles == set(), "cut each cycle"


def test_the_table_has_every_root_package_and_all_files() -> None:
    lines = table().splitlines()
    assert {f"`{root}`" for root in root_packages()} <= {line.split(" | ")[0][2:] for line in lines}
    counts = [int(line.split(" | ")[1]) for line in lines[2:]]
    assert counts[-1] == sum(counts[:-1]) == len(source_files())


def test_slow_tests_are_there() -> None:
    tests = Path(conftest.__file__).parent
    assert [path for path in conftest.SLOW if not (tests / path).exists()] == []
