"""The package's front: every name is there, and importing it costs nothing."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys

import pytest

import millrace_protocol


@pytest.mark.parametrize("name", millrace_protocol.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(millrace_protocol, name) is not None
    assert name in dir(millrace_protocol)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = millrace_protocol.nothing


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        ("millrace_protocol", ["construct", "cramjam", "millrace_protocol.api"]),
        ("millrace_protocol.codec", ["cramjam", "asyncio", "millrace_protocol.dissect"]),
        ("millrace_protocol.framing", ["cramjam", "socket"]),
        ("millrace_protocol.dissect", ["asyncio", "pyarrow", "millrace_protocol.spec"]),
    ],
)
def test_an_import_brings_no_more_than_it_needs(imported: str, absent: list[str]) -> None:
    code = f"import sys, {imported}; print([m for m in {absent} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["", ".schema", ".api", ".dissect", ".dissect.files"])
def test_the_examples_in_docstrings_are_true(name: str) -> None:
    module = importlib.import_module(f"millrace_protocol{name}")
    failed, attempted = doctest.testmod(module)
    assert (failed, attempted > 0) == (0, True)
