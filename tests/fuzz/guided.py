"""One target under atheris, until it has had its runs: `python -m tests.fuzz` starts this.

atheris ends the process it runs in, and measures only code that it saw being imported; so each
target has a process, and the decoders are imported here and not at the top.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import atheris

from tests.fuzz.mutation import INPUT_BYTES_MAX

MEASURED = ["millrace_protocol", "millrace_server", "millrace"]
TIMEOUT_S = 5
MEMORY_MIB_MAX = 1024


def main(name: str, runs: int, seed: int, corpus: Path) -> None:
    with atheris.instrument_imports(include=MEASURED):
        from tests.fuzz.targets import TARGETS
        from tests.fuzz.typed_lines import TEXT_LINE, typed_lines
    with ExitStack() as stack:
        if name == TEXT_LINE:
            target = stack.enter_context(typed_lines())
        else:
            target = next(target for target in TARGETS if target.name == name)
        directory = corpus / target.name.replace(" ", "-")
        directory.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(target.seeds):
            (directory / f"seed-{number}").write_bytes(data)
        atheris.Setup(
            [
                sys.argv[0],
                f"-runs={runs}",
                f"-seed={seed or 1}",
                f"-max_len={INPUT_BYTES_MAX}",
                f"-timeout={TIMEOUT_S}",
                f"-rss_limit_mb={MEMORY_MIB_MAX}",
                f"-artifact_prefix={directory}/",
                str(directory),
            ],
            target.run,
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
