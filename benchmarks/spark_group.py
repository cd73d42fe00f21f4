"""The group `spark`, where Spark is: it needs pyspark, pyarrow and Java."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator

from benchmarks.results import Row, Skipped
from benchmarks.session import Session

GROUP = "spark"


def run(session: Session) -> Iterator[Row]:
    """All rows of the group, or a line that says what is missing."""
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        yield Skipped(GROUP, f"{names} not installed: pip install 'millrace[spark]'")
        return
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        yield Skipped(GROUP, "no java on the PATH: Spark needs Java 17 or newer")
        return
    # Not before it is known that they can be imported.
    from benchmarks.spark_arena import measure

    yield from measure(session, GROUP)
