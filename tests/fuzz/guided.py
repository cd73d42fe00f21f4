"""A run in which atheris finds the inputs, by the code that they reach.

atheris measures only code that it saw being imported, so the decoders are imported here and not
at the top; and it never comes back, so the process ends in the midst of the last input.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import atheris

if TYPE_CHECKING:
    from tests.fuzz.driver import Outcome

MEASURED = ["millrace_protocol", "millrace_server", "millrace"]
TIMEOUT_S = 5
MEMORY_MIB_MAX = 2048


def run_guided(
    name: str, inputs: int, seed: int, corpus: Path, *, say: Callable[[Outcome], None]
) -> None:
    """Runs `inputs` new inputs, says the outcome and ends the process.

    An input that does not end, or takes too much memory at once, ends the process with a status
    other than 0; atheris then says so on stderr and keeps the input in `corpus`.
    """
    with atheris.instrument_imports(include=MEASURED):
        from tests.fuzz.catalogue import opened
        from tests.fuzz.driver import Gauge
    with ExitStack() as stack:
        target = stack.enter_context(opened(name))
        for number, data in enumerate(target.seeds):
            (corpus / f"seed-{number}").write_bytes(data)
        # The corpus of an earlier run comes first, and does not count.
        last = inputs + sum(1 for _ in corpus.iterdir())
        gauge: Gauge | None = None

        def run(data: bytes) -> None:
            nonlocal gauge
            if gauge is None:
                # Not earlier: atheris has its tables by now, which are not what an input costs.
                gauge = Gauge(target)
            gauge.run(data)
            if gauge.outcome.inputs >= last or gauge.outcome.has_ended:
                say(gauge.read())
                stack.close()
                os._exit(0)

        atheris.Setup(
            [
                sys.argv[0],
                f"-seed={seed or 1}",
                f"-max_len={target.bytes_max}",
                f"-timeout={TIMEOUT_S}",
                f"-rss_limit_mb={MEMORY_MIB_MAX}",
                f"-artifact_prefix={corpus}/",
                str(corpus),
            ],
            run,
        )
        atheris.Fuzz()
