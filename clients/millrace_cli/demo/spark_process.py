"""The process of the demo's Spark part.

Owns the check for the needed packages, the directory of the files, and the bound of the wait. The
process runs `spark_analysis`, so that ^C can end it and Spark in the middle of a job.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from millrace_cli.exits import CommandError, Exit

NEEDED = ("pyspark", "pyarrow", "matplotlib")
WAIT_S = 300.0
"""Longest time of the part, which takes less than a minute."""


async def analyse(servers: str, topic: str, *, limit: int | None, plot: Path) -> Exit:
    """Imports the topic, compares and draws; OK too if a package or Java is missing.

    Raises `CommandError` if the process fails, or does not end within `WAIT_S`.
    """
    for package in NEEDED:
        if importlib.util.find_spec(package) is None:
            print(
                f"spark: omitted; it needs {package}: pip install 'millrace[demo]'",
                file=sys.stderr,
            )
            return Exit.OK
    with tempfile.TemporaryDirectory(prefix="millrace-demo-") as directory:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # No module is imported from the current directory.
            "-P",
            *("-m", "millrace_cli.demo.spark_analysis"),
            *(servers, topic, str(limit or ""), directory, str(plot)),
            stdin=asyncio.subprocess.DEVNULL,
            # ^C reaches the demo only, which kills this process; the JVM ends with it.
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(WAIT_S):
                code = await process.wait()
        except TimeoutError:
            raise CommandError(
                f"Spark took more than {WAIT_S:.0f} s; run the demo again on a less busy "
                "machine, or with --no-spark"
            ) from None
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        return Exit(code)
    except ValueError:
        raise CommandError(
            f"the process with Spark ended with {code}; run the demo again, or with --no-spark"
        ) from None
