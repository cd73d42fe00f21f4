"""The sources that a process under test runs: those that are installed, or another directory's.

Owns the environment of such a process and the command that starts a broker. The interpreter and all
dependencies are the same for every checkout. What loads a broker is always of this checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Checkout:
    """One state of the sources."""

    serve: tuple[str, ...]
    """The command that starts a broker."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that have Python find these sources."""


def installed() -> Checkout:
    """The millrace of the virtual environment that runs the benchmarks."""
    return Checkout((sys.executable, "-P", "-m", "millrace_cli", "serve"))


def checkout_at(root: Path) -> Checkout:
    """The sources in a directory, whatever is installed.

    Raises `ValueError` if there are none, or if Python finds others.
    """
    try:
        settings = tomllib.loads((root / "pyproject.toml").read_text())
        module, _, function = settings["project"]["scripts"]["millrace"].partition(":")
        folders = settings["tool"]["hatch"]["build"]["dev-mode-dirs"]
    except (OSError, KeyError) as error:
        raise ValueError(f"{root} is no checkout of millrace: {error!r}") from error
    # -P: the directory that the benchmarks run in is not a place of the broker's modules.
    start = f"import sys; from {module} import {function}; sys.exit({function}())"
    path = os.pathsep.join(str(root.resolve() / folder) for folder in folders)
    environment = {"PYTHONPATH": path}
    found = subprocess.run(
        [sys.executable, "-P", "-c", "import millrace, millrace_server; print(millrace.__file__)"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if not found.stdout.startswith(str(root.resolve())):
        raise ValueError(f"{root}: Python does not import millrace from there: {found.stderr}")
    return Checkout((sys.executable, "-P", "-c", start, "serve"), environment)
