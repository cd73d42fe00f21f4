"""The version that a cluster is upgraded from."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--upgrade-from", metavar="COMMIT", help="not the previous commit, but this")
