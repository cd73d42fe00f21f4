"""What the JVM of a Spark session prints: kept from the terminal, or passed on line by line.

Owns the pipe and its reader. Python workers on this machine print by way of the JVM too.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkConf

LINES_KEPT = 20
LINES_TOLD = 3
LINE_BYTES_MAX = 16 * 1024


class SparkOutput:
    """Receives the lines of one JVM. `show` takes those that the user should see, None: no line."""

    def __init__(self, show: Callable[[str], None] | None = None) -> None:
        self._show = show
        self._is_shown = False
        self._kept: deque[str] = deque(maxlen=LINES_KEPT)

    def show_from_now(self) -> None:
        """Passes later lines on. What Spark prints while it starts tells the user nothing."""
        self._is_shown = True

    def last_lines(self) -> str:
        """The last lines that say something, as one, for a JVM that did not start."""
        return "; ".join([line.strip() for line in self._kept if line.strip()][-LINES_TOLD:])

    def start_context(self, conf: SparkConf) -> None:
        """Starts a JVM that prints to here, and the context of the session; not a second one.

        Raises what pyspark does.
        """
        from pyspark import SparkContext
        from pyspark.java_gateway import launch_gateway

        if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
            return
        reading, writing = os.pipe()
        reader = threading.Thread(
            target=self._read, args=(reading,), name="spark-output", daemon=True
        )
        reader.start()
        try:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                conf, {"stdout": writing, "stderr": writing}
            )
        except Exception:
            os.close(writing)
            # The JVM is gone, so the reader comes to the end.
            reader.join(timeout=5)
            raise
        os.close(writing)
        SparkContext(conf=conf, gateway=gateway)

    def _read(self, fd: int) -> None:
        with os.fdopen(fd, "rb") as file:
            while data := file.readline(LINE_BYTES_MAX):
                line = data.decode(errors="replace").rstrip()
                self._kept.append(line)
                if self._is_shown and self._show is not None:
                    self._show(line)
