"""The command line as tests start it, without the installed script.

An editable installation keeps the script of the day it was installed. Tests run the sources.
"""

from __future__ import annotations

import sys
from pathlib import Path

COMMAND = (sys.executable, "-P", "-m", "millrace_cli")


def write_script(directory: Path) -> Path:
    """Writes an executable `millrace` into a directory, for the PATH of a shell."""
    script = directory / "millrace"
    script.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    script.chmod(0o755)
    return script
