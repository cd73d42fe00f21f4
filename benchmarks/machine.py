"""What a reader must know of the machine to judge a figure, and nothing that identifies it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

PACKAGES = ("uvloop", "crc32c", "pyarrow", "pyspark", "aiokafka", "confluent-kafka")


def machine_facts(directory: Path) -> dict[str, str]:
    """Processors, kernel, Python and package versions; `directory` is where data will lie."""
    facts = {
        "CPUs": str(len(os.sched_getaffinity(0))),
        "CPU model": _cpu_model(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "load before the run": f"{os.getloadavg()[0]:.2f}",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(directory),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "millrace": f"{_version('millrace')} at {revision(Path(__file__).parent)}",
    }
    facts |= {name: _version(name) for name in PACKAGES}
    return facts


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def revision(directory: Path) -> str:
    """The commit that a directory is at, and whether it was changed; empty where git has none."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=directory)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _cpu_model() -> str:
    match = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1] if match else platform.machine()


def _file_system(directory: Path) -> str:
    """The type of the file system that `directory` is on, by the longest mount point."""
    best, kind = "", "unknown"
    place = str(directory.resolve())
    for line in Path("/proc/self/mounts").read_text().splitlines():
        mount, of_type = line.split()[1:3]
        if len(mount) > len(best) and (place + "/").startswith(mount.rstrip("/") + "/"):
            best, kind = mount, of_type
    return kind
