"""No record is lost, doubled or taken back while brokers are killed, paused and cut off.

`python -m tests.chaos` runs longer.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.host_network import refusal


def test_no_anomaly_is_seen_in_a_minute_of_chaos(tmp_path: Path) -> None:
    if reason := refusal():
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.chaos", "--minutes", "1", "--data", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "nothing wrong" in ended.stdout
