"""Each anomaly, planted into a small history, is found there, and nothing else is."""

from __future__ import annotations

import pytest

from tests.history.anomalies import SHOWN_MAX, Kind
from tests.history.checker import check
from tests.history.operations import (
    Acked,
    Assigned,
    Crashed,
    Failed,
    Fetched,
    Forgot,
    History,
    Led,
    Left,
    Operation,
    Polled,
    ReadToEnd,
    Sent,
    Sought,
    Unknown,
    Watermark,
)

A, B = "t-0", "t-1"


def sent(*values: int, process: int = 1, partition: str = A) -> list[Operation]:
    return [Sent(process, partition, value) for value in values]


def acked(*values: int, base_offset: int = 0) -> list[Operation]:
    """Sent one after the other, and acked at offsets from `base_offset` on."""
    done: list[Operation] = []
    for offset, value in enumerate(values, base_offset):
        done += [Sent(1, A, value), Acked(value, offset)]
    return done


def polled(*values: int, process: int = 7, offset: int = 0) -> Polled:
    return Polled(process, A, list(enumerate(values, offset)))


def polled_at(*records: tuple[int, int], process: int = 7) -> Polled:
    return Polled(process, A, list(records))


def fetched(*batches: tuple[int, int, int], process: int = 7) -> Fetched:
    return Fetched(process, A, list(batches))


PLANTED: list[tuple[str, Kind, list[Operation]]] = [
    (
        "two consumers are given different values at one offset",
        Kind.INCONSISTENT_OFFSET,
        [*sent(10, 11), polled(10), polled(11, process=8)],
    ),
    (
        "an offset changes its value under one consumer that seeks back",
        Kind.INCONSISTENT_OFFSET,
        [*sent(10, 11), polled(10), Crashed("b1"), Sought(7, A, 0), polled(11)],
    ),
    ("a retry is appended twice", Kind.DUPLICATE, [*acked(10), polled(10, 10)]),
    (
        "an ack names another offset than a poll",
        Kind.DUPLICATE,
        [*sent(10), polled(10), Acked(10, 4)],
    ),
    (
        "an acked value is not where consumers pass",
        Kind.LOST_WRITE,
        [*acked(10, 11, 12), polled_at((0, 10), (2, 12))],
    ),
    (
        "an acked value is not there after a crash, though the log goes on",
        Kind.LOST_WRITE,
        [*acked(10, 11), Crashed("b1"), polled(10), ReadToEnd(A, 0, 2)],
    ),
    (
        "the log ends before an acked value",
        Kind.UNSEEN_WRITE,
        [*acked(10, 11), Crashed("b1"), polled(10), ReadToEnd(A, 0, 1)],
    ),
    ("a failed send is read", Kind.ABORTED_READ, [*sent(10), Failed(10), polled(10)]),
    ("a send fails after it was read", Kind.ABORTED_READ, [*sent(10), polled(10), Failed(10)]),
    ("a value is read that was not sent", Kind.PHANTOM, [*sent(10), polled(10, 99)]),
    ("a value is read before it is sent", Kind.PHANTOM, [polled(10), *sent(10)]),
    (
        "a value is read in another partition",
        Kind.PHANTOM,
        [*sent(10, partition=B), polled(10)],
    ),
    ("a poll gives a record again", Kind.POLL_BACK, [*acked(10, 11), polled(10, 11), polled(10)]),
    ("a poll goes back within", Kind.POLL_BACK, [*sent(10, 11), polled_at((1, 11), (0, 10))]),
    (
        "a poll gives what lies before a seek",
        Kind.POLL_BACK,
        [*acked(10, 11), Sought(7, A, 1), polled(10, 11)],
    ),
    (
        "a poll misses what another consumer was given",
        Kind.POLL_SKIP,
        [*acked(10, 11, 12), polled(10, 11, 12), polled_at((0, 10), (2, 12), process=8)],
    ),
    (
        "polls miss a record between them",
        Kind.POLL_SKIP,
        [*sent(10, 11, 12), polled(10), polled(12, offset=2), polled(10, 11, 12, process=8)],
    ),
    (
        "a poll after a seek begins too late",
        Kind.POLL_SKIP,
        [*sent(10, 11), polled(10, 11), Sought(8, A, 0), polled(11, process=8, offset=1)],
    ),
    (
        "an assignment that keeps a partition does not move it",
        Kind.POLL_BACK,
        [*sent(10, 11), polled(10, 11), Assigned(7, (A, B)), polled(10)],
    ),
    (
        "two sends on their way together change places",
        Kind.SEND_ORDER,
        [*sent(10, 11), Acked(10, 5), Acked(11, 4)],
    ),
    (
        "a later send of another producer comes to lie before an acked one",
        Kind.SEND_ORDER,
        [*sent(10), Acked(10, 5), *sent(11, process=2), Acked(11, 4)],
    ),
    (
        "a value that was read is gone after a crash",
        Kind.TAKEN_BACK,
        [*acked(10, 11), polled(10, 11), Crashed("b1"), ReadToEnd(A, 0, 1)],
    ),
    (
        "what was sent after a power cut is lost like any other",
        Kind.UNSEEN_WRITE,
        [*acked(10), Forgot(A), *acked(11), ReadToEnd(A, 0, 0)],
    ),
    (
        "a power cut took something from the middle",
        Kind.HOLE,
        [
            *acked(10, 11, 12),
            Forgot(A),
            *sent(13, process=2),
            polled_at((0, 10), (1, 13), (2, 12), process=8),
        ],
    ),
    (
        "a deleted topic's value is there again",
        Kind.RESURRECTED,
        [*acked(10), Forgot(A, Left.NOTHING), polled(10, process=8)],
    ),
    (
        "a value that was not acked comes to lie before an earlier one",
        Kind.SEND_ORDER,
        [*sent(10, 11), polled(11, 10)],
    ),
    (
        "a value that may be there twice is not where it was acked",
        Kind.LOST_WRITE,
        [
            Sent(1, A, 10, is_idempotent=False),
            *sent(11),
            Acked(10, 1),
            polled_at((0, 10), (2, 11)),
        ],
    ),
    (
        "the high watermark falls after a crash",
        Kind.WATERMARK_BACK,
        [Watermark(7, A, 9), Crashed("b1"), Watermark(7, A, 8)],
    ),
    (
        "an offset is in another leader epoch after a crash",
        Kind.EPOCH_CHANGED,
        [fetched((0, 3, 1)), Crashed("b1"), fetched((2, 5, 2), process=8)],
    ),
    (
        "a leader writes in the epoch of the one before it",
        Kind.EPOCH_FALLS,
        [fetched((0, 3, 1), (4, 4, 3)), fetched((5, 9, 2), process=8)],
    ),
    (
        "a consumer that seeks back finds the older epoch at the later offset",
        Kind.EPOCH_FALLS,
        [fetched((4, 4, 1)), Sought(7, A, 0), fetched((0, 3, 2))],
    ),
    (
        "a process is told of an older leader after a power cut",
        Kind.EPOCH_BACK,
        [Led(7, A, 3), Crashed("b1"), Led(7, A, 2)],
    ),
]


@pytest.mark.parametrize(
    ("kind", "operations"),
    [(kind, operations) for _, kind, operations in PLANTED],
    ids=[name for name, _, _ in PLANTED],
)
def test_a_planted_anomaly_is_found_and_nothing_else(
    kind: Kind, operations: list[Operation]
) -> None:
    report = check(History(operations))
    assert report.kinds == {kind}, str(report)
    assert report.counts[kind] == 1
    (anomaly,) = report.anomalies
    assert 1 <= len(anomaly.proof) <= 3
    for number in anomaly.proof:
        assert f"{number:>8} {operations[number]}" in str(report)


def test_every_kind_of_anomaly_is_planted() -> None:
    assert {kind for _, kind, _ in PLANTED} == set(Kind)


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [*sent(10), Unknown(10), polled(10)],
        [*sent(10), Unknown(10), ReadToEnd(A, 0, 0)],
        [
            Sent(1, A, 10, is_idempotent=False),
            *acked(11),
            Unknown(10),
            polled(11, 10),
            ReadToEnd(A, 0, 2),
        ],
        [*sent(10), Acked(10, -1), ReadToEnd(A, 0, 0)],
        [*acked(10, 11, 12), polled(11, 12, offset=1)],
        [*acked(10, 11), polled(11, offset=1), ReadToEnd(A, 1, 2)],
        [*acked(10, 11), polled(10, 11), Crashed("c", 7), polled(10, 11)],
        [*acked(10, 11), polled(10, 11), Assigned(7, ()), Assigned(7, (A,)), polled(10)],
        [*acked(10, 11), polled(10, 11), Sought(7, A, None), polled(11, offset=1)],
        [*sent(10), *sent(11, process=2), Acked(11, 0), Acked(10, 1)],
        [Watermark(7, A, 3), Watermark(8, A, 2), Watermark(7, B, 0), Watermark(7, A, 3)],
        [Sent(1, A, 10, is_idempotent=False), Acked(10, 1), polled(10, 10), ReadToEnd(A, 0, 2)],
        [
            *acked(10, 11),
            polled(10, 11),
            Forgot(A),
            *acked(12, base_offset=1),
            polled(10, 12, process=8),
            ReadToEnd(A, 0, 2),
        ],
        [
            *acked(10, 11),
            polled(10),
            Forgot(A),
            *acked(12, 13, base_offset=1),
            polled(11, 13, offset=1),
        ],
        [*sent(10), Forgot(A), Acked(10, 5), ReadToEnd(A, 0, 0)],
        [*sent(10), Forgot(A, Left.NOTHING), Acked(10, 0), polled(10, process=8)],
        [*acked(10, 11), Forgot(A), *sent(12), polled(10, 12, process=8), ReadToEnd(A, 0, 2)],
        [Watermark(7, A, 3), Forgot(A), Watermark(7, A, 2)],
        [fetched((0, 3, 1), (4, 4, 1), (5, 5, 4)), fetched((0, 3, 1), process=8)],
        [fetched((0, 3, 1)), Forgot(A), fetched((0, 3, 1)), fetched((2, 5, 2), process=8)],
        [Led(7, A, 3), Led(8, A, 2), Led(7, B, 0), Led(7, A, 3)],
        [Led(7, A, 3), Forgot(A, Left.NOTHING), Led(7, A, 3), Led(7, A, 0), Led(8, A, 0)],
    ],
    ids=[
        "nothing happened",
        "an unknown send was read",
        "an unknown send was not read",
        "an unknown send arrived late",
        "an ack without an offset",
        "a consumer that begins late misses nothing",
        "retention took what was acked",
        "a consumer that was killed reads again",
        "a partition given up and taken again",
        "a seek to where only the broker knows",
        "sends of two producers on their way together",
        "two observers, two partitions, and no change",
        "a retry without idempotence was appended twice",
        "a power cut took the end, and others came to lie there",
        "a consumer still had at hand what a power cut took",
        "an ack that was on its way when the power was cut",
        "a send that outlived its topic",
        "a consumer that began after a power cut reads what is left",
        "the high watermark falls with what a power cut took",
        "leader epochs rise along the offsets",
        "others write in a new epoch where a power cut took the end",
        "two processes hear of leaders, one later than the other",
        "a topic that is made again is led in the first epoch",
    ],
)
def test_what_a_correct_log_may_show_is_no_anomaly(operations: list[Operation]) -> None:
    report = check(History(operations))
    assert report.is_valid, str(report)


@pytest.mark.parametrize(
    "operations",
    [[*sent(10), *sent(10)], [Acked(10, 0)], [*sent(10), Acked(10, 0), Failed(10)]],
    ids=["sent twice", "ended without a beginning", "ended twice"],
)
def test_a_list_that_is_no_history_is_refused(operations: list[Operation]) -> None:
    with pytest.raises(ValueError, match="operation"):
        check(History(operations))


def test_a_report_is_bounded_and_says_how_many_there_are() -> None:
    count = SHOWN_MAX * 5
    history = History([*acked(*range(count)), ReadToEnd(A, 0, count)])
    report = check(history)
    assert report.counts == {Kind.LOST_WRITE: count}
    assert len(report.anomalies) == SHOWN_MAX
    assert f"LOST_WRITE: {count}:" in str(report)


def test_the_proof_is_told_with_the_kills_between() -> None:
    history = History([*acked(10), Crashed("b1"), Crashed("b1"), ReadToEnd(A, 0, 0)])
    assert str(check(history)).splitlines() == [
        "5 operations, 1 anomalies",
        "UNSEEN_WRITE: 1: the log ends before an acked value",
        "  t-0: 10 was acked at offset 0 and the log ends at 0",
        "           1 10 is acked at offset 0",
        "         ... 2 killed",
        "           4 t-0 was read from 0 to its end 0",
    ]
