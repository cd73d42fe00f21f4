"""A writing process is killed with SIGKILL, on a real disk, again and again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from millrace_server.disk.os_disk import OsDisk
from millrace_server.log import LogConfig, PartitionLog
from tests.server.log.log_model import DIRECTORY, read_all

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500)

WRITER = """
import sys
from pathlib import Path
from millrace_protocol.records import encode_batch, read_header
from millrace_server.disk.os_disk import OsDisk
from millrace_server.log import LogConfig, PartitionLog

disk = OsDisk(Path(sys.argv[1]))
config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
if disk.exists("orders-0"):
    log = PartitionLog.open(disk, "orders-0", config, now_ms=0)
else:
    log = PartitionLog.create(disk, "orders-0", config)
print(log.end_offset, flush=True)
while True:
    for _ in range(10):
        batch = encode_batch([b"%d" % log.end_offset + b"x" * 300], timestamps_ms=1)
        log.append(batch, read_header(batch), now_ms=0)
    log.flush()
    print(log.durable_offset, flush=True)
"""


def test_what_a_killed_writer_had_made_durable_is_there(tmp_path: Path) -> None:
    root = tmp_path / "data"
    durable = 0
    for round_number in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            assert int(writer.stdout.readline()) >= durable
            for _ in range(5 + round_number * 7):
                durable = int(writer.stdout.readline())
            writer.kill()
            # What it printed before it was killed counts as well.
            for line in writer.stdout.read().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    durable = int(line)
        assert durable > round_number * 50
    log = PartitionLog.open(OsDisk(root), DIRECTORY, CONFIG, now_ms=0)
    assert log.end_offset >= durable
    assert log.segment_count > 1
    assert [value for _, _, value in read_all(log)] == [
        b"%d" % offset + b"x" * 300 for offset in range(log.end_offset)
    ]
    log.close()
