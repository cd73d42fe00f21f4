"""A Spark driver in a process of its own: what it is asked and what it responds, a line each."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.processes import read_line


class SparkDriver:
    """The other end of the `main` of a driver."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self.response()

    def ask(self, command: str, *parameters: Any) -> Any:
        """What the driver responds to a command. Raises `ProcessFailed` when it ends instead."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([command, *parameters]) + "\n")
        self._process.stdin.flush()
        return self.response()

    def response(self) -> Any:
        """The next line of the driver."""
        return json.loads(read_line(self._process, self._log))
