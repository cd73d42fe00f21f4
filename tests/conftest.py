"""Settings of the whole suite."""

from __future__ import annotations

import os
import signal
from pathlib import Path

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


SLOW = (
    "backup",
    "chaos",
    "cluster",
    "crash",
    "fuzz",
    "hostile",
    "sim",
    "simulation",
    "spark",
    "upgrade",
    "access/test_access_matrix.py",
    "cli/test_cli_broker_away.py",
    "cli/test_cli_cluster_changes.py",
    "cli/test_cli_cluster_start.py",
    "cli/test_cli_demo.py",
    "cli/test_cli_missing_rights.py",
    "cli/test_cli_pipes.py",
    "cli/test_cli_round_trip.py",
    "cli/test_cli_simulate.py",
    "cli/test_demo_spark.py",
    "cli/test_spark_output.py",
    "clients/cluster/test_connect_backoff.py",
    "monitoring/test_health.py",
    "protocol/kafka/test_kafka_messages.py",
    "raft/test_raft_simulation.py",
    "server/log/test_log_crash.py",
    "server/metadata/test_controller_machine.py",
    "test_manual.py",
    "test_readme.py",
)
"""Folders and files with slow tests: lives with faults, many processes, Spark, generated inputs.

`pytest` without paths omits them, and `pytest -m slow` runs them. A path that is given runs whole.
"""
_TESTS = Path(__file__).parent
_DEFAULT = "not long"
"""The expression of `addopts`."""


def pytest_configure(config: pytest.Config) -> None:
    """Omits slow tests where neither paths nor marks choose the tests. Workers get the choice."""
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if is_whole and config.option.markexpr == _DEFAULT:
        config.option.markexpr = f"{_DEFAULT} and not slow"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks slow tests; those that are long have their own mark."""
    path = item.path.relative_to(_TESTS).as_posix()
    is_long = item.get_closest_marker("long") is not None
    if not is_long and any(path == slow or path.startswith(f"{slow}/") for slow in SLOW):
        item.add_marker("slow")


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
