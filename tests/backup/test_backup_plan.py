"""What a run copies, decided from what the log and the backup have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millrace_cli.backup.manifest import BackupFile, BackupPartition, LastBatch
from millrace_cli.backup.plan import COMPACTED_BYTES_MIN, CopyPlan, SourceLog, plan_copy
from millrace_cli.backup.plan import is_continued as continued

MIB = COMPACTED_BYTES_MIN
DAY_MS = 86_400_000
FILES = (BackupFile(0, 50, 500, 1, 1), BackupFile(50, 100, 500, 2, 2))
LAST = LastBatch(90, 3, 77)
BEFORE = BackupPartition(0, 100, FILES, LAST)
LOG = SourceLog(0, 200, 2_000, 1_000, is_compacted=False, delete_retention_ms=DAY_MS)
WHOLE = CopyPlan((), 0)


def plan(log: SourceLog, before: BackupPartition | None = BEFORE, age_ms: int = 0) -> CopyPlan:
    return plan_copy(log, before, before_ms=0, now_ms=age_ms)


@pytest.mark.parametrize(
    ("log", "before", "wanted"),
    [
        (LOG, None, WHOLE),
        (LOG, BEFORE, CopyPlan(FILES, 90, LAST)),
        (replace(LOG, end_offset=100), BEFORE, CopyPlan(FILES, 90, LAST)),
        (replace(LOG, start_offset=50), BEFORE, CopyPlan(FILES[1:], 90, LAST)),
        (replace(LOG, start_offset=95), BEFORE, CopyPlan(FILES[1:], 95, LAST)),
        (replace(LOG, start_offset=100), BEFORE, CopyPlan((), 100)),
        (replace(LOG, start_offset=150), BEFORE, CopyPlan((), 150)),
        (replace(LOG, end_offset=99), BEFORE, WHOLE),
        (LOG, BackupPartition(0, 0, (), None), WHOLE),
    ],
)
def test_a_run_copies_what_is_behind_the_last_batch(
    log: SourceLog, before: BackupPartition | None, wanted: CopyPlan
) -> None:
    assert plan(log, before) == wanted


@pytest.mark.parametrize(
    ("age_ms", "kept_bytes", "is_whole"),
    [
        (DAY_MS - 1, 500, False),
        (DAY_MS, 500, True),
        (-1, 500, True),
        (0, 3 * MIB, False),
        (0, 3 * MIB + 1, True),
    ],
)
def test_a_compacted_log_is_copied_again_before_a_tombstone_is_gone_and_when_it_is_smaller(
    age_ms: int, kept_bytes: int, is_whole: bool
) -> None:
    log = replace(LOG, is_compacted=True, size_bytes=2 * MIB, new_bytes=MIB)
    before = replace(BEFORE, files=(replace(FILES[0], end_offset=100, size_bytes=kept_bytes),))
    assert (plan(log, before, age_ms) == WHOLE) is is_whole
    plain = replace(log, is_compacted=False)
    assert plan(plain, before, age_ms).kept == before.files


@pytest.mark.parametrize(
    ("found", "plain", "compacted"),
    [
        (LAST, True, True),
        (replace(LAST, crc=78), False, True),
        (replace(LAST, leader_epoch=4), False, False),
        (LastBatch(100, 4, 79), False, True),
        (LastBatch(80, 2, 79), False, False),
    ],
)
def test_another_last_batch_is_another_log(found: LastBatch, plain: bool, compacted: bool) -> None:
    assert continued(LOG, LAST, found) is plain
    assert continued(replace(LOG, is_compacted=True), LAST, found) is compacted
