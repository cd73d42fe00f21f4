"""Settings of the whole suite."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

from tests.quick_spark import archive_classes, environment

# The suite tries the same inputs every time, so that a failure points at a change.
# `pytest --hypothesis-profile explore` tries new inputs each time. Inputs have no deadline: their
# time depends on the load of the machine.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile("same")

# Hundreds of processes that the tests start import the package: the first compiles it for all.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A process started under nohup ignores SIGHUP, and one in the background of a script SIGINT; so
# would the commands that the tests start.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-transcripts", action="store_true", help="write what is given today")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests with Spark first.

    They take seconds each. With several workers the first one runs them, with one Spark session,
    and the others steal its remaining tests, so that no worker ends long before another.
    """
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.fixture(scope="session")
def quick_spark(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> dict[str, str]:
    """The environment of processes that start Spark."""
    classes = pytestconfig.cache.mkdir("spark") / "classes.jsa"
    archive_classes(classes)
    return environment(tmp_path_factory.mktemp("spark"), classes)
