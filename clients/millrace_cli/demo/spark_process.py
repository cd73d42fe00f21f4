"""The demo's part with Spark, seen from the demo: whether it can be had, and its process.

Owns what has to be installed, the directory of the files, and the bound of the wait. The work is
`spark_analysis`'s, in a process of its own, so that ^C ends it and Spark in the middle of a job.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from millrace_cli.exits import Exit, Refusal

NEEDED = ("pyspark", "pyarrow", "matplotlib")
WAIT_S = 300.0
"""Bound of the whole part, which takes a fraction of a minute."""


async def analyse(servers: str, topic: str, *, limit: int | None, plot: Path) -> Exit:
    """Imports the topic, compares and draws; OK also where a package or Java is missing.

    Raises `Refusal` when the process dies, or does not end within `WAIT_S`.
    """
    for package in NEEDED:
        if importlib.util.find_spec(package) is None:
            print(
                f"spark: left out; it needs {package}: pip install 'millrace[demo]'",
                file=sys.stderr,
            )
            return Exit.OK
    with tempfile.TemporaryDirectory(prefix="millrace-demo-") as directory:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # Nothing in the directory where the demo was started is taken for a module.
            "-P",
            *("-m", "millrace_cli.demo.spark_analysis"),
            *(servers, topic, str(limit or ""), directory, str(plot)),
            stdin=asyncio.subprocess.DEVNULL,
            # ^C is for the demo, which kills it; the JVM ends with the process that it serves.
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(WAIT_S):
                code = await process.wait()
        except TimeoutError:
            raise Refusal(
                f"Spark took more than {WAIT_S:.0f} s; run the demo again when the machine has "
                "less to do, or with --no-spark"
            ) from None
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        return Exit(code)
    except ValueError:
        raise Refusal(
            f"the process with Spark ended with {code}; run the demo again, or with --no-spark"
        ) from None
