"""Short lives of a log, and the invariants of every state after a power cut.

Everything that was durable is there, nothing is there that was not appended, in the order and
with the bytes it was appended with, and the log goes on. Of a log that is compacted all is there
that no later record replaces.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from millrace_protocol.records import Record, assign, encode_batch
from millrace_server.log import PASSING_ERRNOS, Cleaning, LogConfig, PartitionLog
from millrace_server.log.checkpoint import CHECKPOINT_NAME
from tests.crash.durable_states import Moment, MomentDisk, Tally, states
from tests.server.log.keyed_log import Pair, append_pairs, final_map, read_records
from tests.server.log.log_model import DIRECTORY

SMALL = LogConfig(segment_bytes=1_600, index_interval_bytes=200, retention_bytes=2_000)
BIG = LogConfig(segment_bytes=90_000)
"""Small segments roll within a few batches; space is reserved only for big ones."""
COMPACTED = LogConfig(
    segment_bytes=700,
    index_interval_bytes=200,
    retention_bytes=2_000,
    deletes=False,
    compacts=True,
    min_cleanable_dirty_ratio=0,
    max_compaction_lag_ms=500,
    delete_retention_ms=100,
)
GAP = b""
"""Stands for an offset that the leader's compaction has left out."""
PRODUCER = 7
KEYS = 3
TOMBSTONES = 5
"""Every so many records a key is deleted."""


@dataclass(frozen=True)
class Promise:
    """`durable` of the `sent` values must be there; none below `start` has to be, and none below
    `deleted` may be.

    `is_recovering` from a power cut, which may have left an old recovery point. Compaction was
    never asked to clean beyond `clean_end`.
    """

    is_created: bool
    durable: int
    start: int
    sent: tuple[bytes, ...]
    is_recovering: bool = False
    clean_end: int = 0
    epochs: tuple[int, ...] = ()
    """The leader epoch of each value in `sent`."""
    deleted: int = 0


class LogLife:
    """A log, and what has been promised of it."""

    def __init__(self, disk: MomentDisk, config: LogConfig) -> None:
        self.disk = disk
        self.config = config
        self.sent: list[bytes] = []
        self.epochs: list[int] = []
        self.durable = 0
        self.start = 0
        self.deleted = 0
        self.is_created = False
        self.is_recovering = False
        self.clean_end = 0
        disk.facts = self.promise
        self.log = PartitionLog.create(disk, DIRECTORY, config)
        self.is_created = True

    def promise(self) -> Promise:
        sent = tuple(self.sent)
        return Promise(
            self.is_created,
            self.durable,
            self.start,
            sent,
            self.is_recovering,
            self.clean_end,
            tuple(self.epochs),
            self.deleted,
        )

    def append(self, *sizes: int) -> None:
        """Appends batches of one record, of about so many bytes."""
        for size in sizes:
            number = len(self.sent)
            value = b"%03d" % number + bytes([65 + number % 26]) * max(0, size - 80)
            self.sent.append(value)
            self.epochs.append(self.log.leader_epoch)
            append_next(self.log, number, value)

    def follow(self, missing: int, size: int) -> None:
        """Takes over a batch of about so many bytes, behind a gap of so many offsets."""
        number = len(self.sent) + missing
        value = b"%03d" % number + bytes([65 + number % 26]) * max(0, size - 80)
        epoch = self.log.leader_epoch
        self.sent += [GAP] * missing + [value]
        self.epochs += [epoch] * (missing + 1)
        self.log.append_as_follower(leader_batch(number, value, epoch), now_ms=1_000)

    def flush(self, *, checkpoint: bool = False) -> None:
        ticket = self.log.begin_flush(checkpoint=checkpoint)
        if ticket is None:
            return
        try:
            ticket.sync()
            self.log.finish_flush(ticket)
            self.durable = self.log.durable_offset
            ticket.settle()
            if ticket.is_settled and ticket.checkpoint is not None:
                self.deleted = ticket.checkpoint.start_offset
        finally:
            self.log.finish_settle(ticket)

    def lead(self) -> None:
        """Another election: the next epoch is durable before it is written into a batch."""
        self.log.begin_epoch(self.log.leader_epoch + 1)
        self.flush()

    def truncate(self, offset: int) -> None:
        """Takes the tail off, as after an election that another broker has won."""
        offset = self._boundary(offset)
        self.durable = min(self.durable, offset)
        self.log.truncate_to(offset, high_watermark=0, now_ms=2_000)
        del self.sent[offset:], self.epochs[offset:]
        self.durable = self.log.durable_offset

    def retain(self) -> None:
        self.log.retention(2_000, high_watermark=self.log.durable_offset)
        self.start = self.log.start_offset

    def advance_start(self, offset: int) -> None:
        """Deletes the records before an offset, as far as they are durable."""
        offset = self._boundary(min(offset, self.log.durable_offset))
        self.start = max(self.start, offset)
        self.log.advance_start(offset, high_watermark=self.log.durable_offset)

    def _boundary(self, offset: int) -> int:
        """The end of the last batch before an offset, as a high watermark is."""
        while offset and self.sent[offset - 1] == GAP:
            offset -= 1
        return offset

    def clean(self, now_ms: int = 2_000) -> None:
        """A pass of compaction, as far as the disk lets it."""
        cleaning = self.log.cleaner.begin(
            now_ms, high_watermark=self.log.durable_offset, keys_max=100
        )
        if cleaning is None:
            return
        self.clean_end = max(self.clean_end, self.log._chain.active.base_offset)
        try:
            self._carry_out(cleaning)
        except OSError as error:
            if error.errno not in PASSING_ERRNOS:
                raise
        finally:
            cleaning.close()

    def _carry_out(self, cleaning: Cleaning) -> None:
        while (done := cleaning.step()) is not None:
            if isinstance(done, int):
                continue
            if not self.log.cleaner.swap(done):
                done.discard()
                return
            self.flush()
        self.log.cleaner.finish(cleaning)

    def roll(self, now_ms: int = 2_000) -> None:
        """Closes a segment that is too old to wait for more."""
        self.log.retention(now_ms, high_watermark=self.log.durable_offset)

    def close(self) -> None:
        self.log.close()
        self.durable = len(self.sent)

    def open(self) -> None:
        self.log = PartitionLog.open(self.disk, DIRECTORY, self.config, now_ms=3_000)
        del self.sent[self.log.end_offset :], self.epochs[self.log.end_offset :]
        self.durable = self.log.durable_offset
        self.is_recovering = False

    def lose_power(self, seed: int) -> None:
        """The machine starts again on one of the states, and the log is recovered."""
        rng = random.Random(seed)
        found = list(states(self.disk.moment(None), Tally(), limit=64, rng=rng))
        before, self.disk = self.disk, rng.choice(found)
        self.disk.moments, self.disk.facts = before.moments, self.promise
        self.disk.operations, self.disk.fail_at = before.operations, before.fail_at
        self.is_recovering = True
        self.open()


def append_and_flush(life: LogLife) -> None:
    """Batches of all sizes, synced between, a checkpoint, more."""
    life.append(120, 700)
    life.flush()
    life.append(90, 90)
    life.flush(checkpoint=True)
    life.append(90, 600)


def roll(life: LogLife) -> None:
    """Segments that are closed and begun before anything is synced, and after."""
    life.append(900, 500, 700)
    life.flush()
    life.append(1_000, 300)
    life.flush()
    life.append(1_200)


def close_in_order(life: LogLife) -> None:
    """A shutdown, a start, a little more."""
    life.append(400, 1_300)
    life.close()
    life.open()
    life.append(100)
    life.flush()
    life.close()


def recover(life: LogLife) -> None:
    """A power cut, and another during the recovery or soon after it."""
    life.append(600, 300)
    life.flush()
    life.append(900, 300, 700)
    life.lose_power(seed=len(life.sent))
    life.append(300)
    life.flush()


def cut(life: LogLife) -> None:
    """A torn tail that spans segments is cut, and other batches take its place."""
    life.append(200)
    life.flush(checkpoint=True)
    life.append(700, 1_100, 500)
    life.lose_power(seed=5)
    life.append(400, 900)
    life.lose_power(seed=6)
    life.append(100)
    life.flush()


def retain(life: LogLife) -> None:
    """Old segments are deleted, while others are begun."""
    life.append(1_200, 1_200, 1_200)
    life.flush()
    life.retain()
    life.append(300)
    life.flush()
    life.append(1_400)
    life.flush(checkpoint=True)
    life.retain()
    life.flush()


def reserve_space(life: LogLife) -> None:
    """Batches of many sectors, space reserved ahead, and trimmed by a roll and a shutdown."""
    life.append(66_000)
    life.flush()
    life.append(300, 2_000)
    life.flush()
    life.append(30_000)
    life.flush()
    life.close()


def compact(life: LogLife) -> None:
    """Segments are cleaned and merged, and what came of it is cleaned and merged again."""
    life.append(90, 90, 300, 90, 500)
    life.flush(checkpoint=True)
    life.clean()
    life.flush()
    life.append(90, 90, 400)
    life.flush(checkpoint=True)
    life.clean(now_ms=2_050)
    life.append(600)
    life.flush(checkpoint=True)
    life.clean(now_ms=2_200)
    life.flush()


def compact_what_the_recovery_point_names(life: LogLife) -> None:
    """The last segment that was written to is closed by its age, and cleaned."""
    life.append(300, 300)
    life.flush()
    life.append(90, 90)
    life.flush()
    life.roll()
    life.flush()
    life.clean()
    life.flush()


def compact_and_stop(life: LogLife) -> None:
    """A shutdown and a power cut soon after a pass, and a pass after each."""
    life.append(300, 300, 300, 300, 300)
    life.flush(checkpoint=True)
    life.clean()
    life.close()
    life.open()
    life.append(300, 300)
    life.flush(checkpoint=True)
    life.clean()
    life.lose_power(seed=3)
    life.append(300, 300)
    life.flush(checkpoint=True)
    life.clean()
    life.flush()


def truncate(life: LogLife) -> None:
    """A tail of one segment and of several is taken off, and another one takes its place."""
    life.append(300, 300, 700, 900, 700)
    life.flush()
    life.lead()
    life.append(400, 900)
    life.flush()
    life.truncate(4)
    life.lead()
    life.append(600, 90)
    life.flush()
    life.truncate(5)
    life.append(90)
    life.lose_power(seed=2)
    life.truncate(0)
    life.append(500)
    life.flush(checkpoint=True)


def advance_start(life: LogLife) -> None:
    """Records are deleted from the front, within a segment, across segments, and all of them."""
    life.append(700, 700, 700, 700)
    life.flush()
    life.advance_start(1)
    life.flush()
    life.append(900)
    life.advance_start(3)
    life.append(300)
    life.flush()
    life.advance_start(5)
    life.lose_power(seed=1)
    life.append(300)
    life.flush(checkpoint=True)
    life.advance_start(len(life.sent))
    life.close()
    life.open()
    life.append(300)
    life.flush()


def follow_a_compacted_leader(life: LogLife) -> None:
    """Gaps in a batch's segment, at the front of one, behind a restart, and a tail cut in one."""
    life.append(300)
    life.follow(3, 300)
    life.flush()
    life.follow(2, 900)
    life.follow(1, 700)
    life.append(200)
    life.flush(checkpoint=True)
    life.follow(4, 900)
    life.flush()
    life.follow(2, 300)
    life.lose_power(seed=4)
    life.follow(1, 500)
    life.flush()
    life.truncate(len(life.sent) - 1)
    life.append(300)
    life.flush()
    life.close()
    life.open()
    life.follow(2, 1_300)
    life.flush()


def at_random(seed: int) -> Callable[[LogLife], None]:
    """A life of a dozen steps drawn from a seed."""

    def live(life: LogLife) -> None:
        rng = random.Random(seed)
        for _ in range(12):
            step = rng.choice(("append", "append", "append", "flush", "checkpoint", *_RARE_STEPS))
            if step == "append":
                life.append(*(rng.choice((90, 300, 700, 1_300)) for _ in range(rng.randint(1, 3))))
            elif step == "retain":
                life.retain()
            elif step == "clean":
                life.clean(now_ms=2_000 + 100 * len(life.sent))
            elif step == "lead":
                life.lead()
            elif step == "follow":
                life.follow(rng.randint(1, 3), rng.choice((90, 700)))
            elif step == "advance start":
                life.advance_start(rng.randint(0, len(life.sent)))
            elif step == "truncate":
                life.truncate(rng.randint(max(life.start, life.clean_end), len(life.sent)))
            elif step == "restart":
                life.close()
                life.open()
            elif step == "lose power":
                life.lose_power(rng.randrange(1_000))
            else:
                life.flush(checkpoint=step == "checkpoint")

    return live


_RARE_STEPS = (
    "retain",
    "restart",
    "lose power",
    "clean",
    "clean",
    "lead",
    "truncate",
    "follow",
    "advance start",
)
Live = Callable[[LogLife], None]
LIVES: dict[str, tuple[Live, LogConfig]] = {
    "append and flush": (append_and_flush, SMALL),
    "roll": (roll, SMALL),
    "close in order": (close_in_order, SMALL),
    "recover": (recover, SMALL),
    "cut": (cut, SMALL),
    "retain": (retain, SMALL),
    "truncate": (truncate, SMALL),
    "advance start": (advance_start, SMALL),
    "follow a compacted leader": (follow_a_compacted_leader, SMALL),
    "reserve space": (reserve_space, BIG),
    "compact": (compact, COMPACTED),
    "compact what the recovery point names": (compact_what_the_recovery_point_names, COMPACTED),
    "compact and stop": (compact_and_stop, COMPACTED),
}


def pair_of(number: int, value: bytes) -> Pair:
    """What the record of that number is, when `value` was sent."""
    return b"%d" % (number % KEYS), None if number % TOMBSTONES == TOMBSTONES - 1 else value


def leader_batch(number: int, value: bytes, epoch: int) -> bytes:
    """The batch that a leader has written for the record of that number."""
    key, content = pair_of(number, value)
    batch = encode_batch(
        [content],
        keys=[key],
        timestamps_ms=1_000,
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=number,
    )
    assign(batch, base_offset=number, leader_epoch=epoch)
    return bytes(batch)


def append_next(log: PartitionLog, number: int, value: bytes) -> tuple[int, bool]:
    """Appends as the producer of these lives does; the offset, and whether it was there."""
    appended = append_pairs(
        log, [pair_of(number, value)], producer_id=PRODUCER, base_sequence=number
    )
    return appended.base_offset, appended.duplicate


def check_content(found: list[Record], sent: list[bytes], start: int, clean_end: int) -> None:
    """Compares what is in a log with what was sent; before `clean_end` it may be compacted."""
    pairs = {n: pair_of(n, value) for n, value in enumerate(sent) if value != GAP}
    offsets = [offset for offset, *_ in found]
    assert offsets == sorted(set(offsets))
    for offset, _, key, value, _ in found:
        assert (key, value) == pairs[offset]
    expected: list[Record] = [
        (offset, 0, *pair, ()) for offset, pair in pairs.items() if offset >= start
    ]
    whole_from = max(start, clean_end)
    assert [offset for offset in offsets if offset >= whole_from] == [
        offset for offset in pairs if offset >= whole_from
    ]
    assert final_map(found) == final_map(expected)


def check_epochs(log: PartitionLog, epochs: tuple[int, ...]) -> None:
    """The epoch table says of every record in the log which leader wrote it."""
    for epoch in set(epochs[log.start_offset :]):
        end = sum(1 for other in epochs if other <= epoch)
        assert log.end_offset_for_epoch(epoch) == (epoch, end)


def moments_of(live: Live, config: LogConfig) -> list[Moment[Promise]]:
    """Every moment of a life at which the power may go."""
    disk = MomentDisk()
    life = LogLife(disk, config)
    live(life)
    disk = life.disk
    return [*disk.moments, disk.moment(life.promise())]  # type: ignore[list-item]


def check_recovered(disk: MomentDisk, promise: Promise, config: LogConfig) -> None:
    """Opens a log as a start after the power cut does, and compares. Raises `AssertionError`."""
    if not promise.is_created:
        return
    log = PartitionLog.open(disk, DIRECTORY, config, now_ms=3_000)
    assert promise.durable <= log.end_offset <= len(promise.sent)
    assert promise.deleted <= log.start_offset <= promise.start
    assert log.durable_offset == log.end_offset
    end_offset = log.end_offset
    check_epochs(log, promise.epochs[:end_offset])
    sent = [*promise.sent[:end_offset], b"next"]
    found = read_records(log, max_bytes=700)
    check_content(found, sent[:-1], log.start_offset, promise.clean_end)
    # The producer's state is as old as the log: its next batch is taken, its last recognised.
    for is_repeated in (False, True):
        assert append_next(log, end_offset, b"next") == (end_offset, is_repeated)
    log.close()
    again = PartitionLog.open(disk, DIRECTORY, config, now_ms=3_000)
    assert again.recovery.is_clean
    check_content(read_records(again), sent, again.start_offset, promise.clean_end)
    again.close()
    PartitionLog.open(disk, DIRECTORY, config, now_ms=3_000, verify=True).discard()
    assert disk.open_files == []


def check_life(live: Live, config: LogConfig, *, limit: int, nested: int = 0) -> Tally:
    """Checks the states after every moment of a life, at most `limit` of each moment.

    With `nested` the power goes again during each recovery: at most so many states of each of
    its moments are recovered too.
    """
    tally = Tally()
    rng = random.Random(1)
    for moment in moments_of(live, config):
        for disk in states(moment, tally, limit=limit, rng=rng):
            contents = disk.contents()
            _check(disk, moment, config)
            if nested:
                for again in _recovery_moments(contents, moment.facts, config):
                    for second in states(again, tally, limit=nested, rng=rng):
                        _check(second, again, config)
    return tally


def check_lost_checkpoints(live: Live, config: LogConfig) -> int:
    """Kills a log at every moment of a life, and loses its checkpoint; returns how often.

    Not while it recovers from a power cut: what that has torn, only the checkpoint tells from
    what was durable.
    """
    rng = random.Random(1)
    count = 0
    for moment in moments_of(live, config):
        *_, killed = states(moment, Tally(), limit=2, rng=rng)
        path = f"{DIRECTORY}/{CHECKPOINT_NAME}"
        if moment.facts.is_recovering or not moment.facts.is_created:
            continue
        if killed.exists(path):
            killed.damage(path, 0, b"XXXX")
            _check(killed, moment, config)
            count += 1
    return count


def _recovery_moments(
    contents: dict[str, bytes | None], promise: Promise, config: LogConfig
) -> list[Moment[Promise]]:
    """The moments of one recovery."""
    if not promise.is_created:
        return []
    disk = MomentDisk.holding(contents)
    disk.facts = lambda: promise
    PartitionLog.open(disk, DIRECTORY, config, now_ms=3_000).discard()
    return [*disk.moments, disk.moment(promise)]  # type: ignore[list-item]


def _check(disk: MomentDisk, moment: Moment[Promise], config: LogConfig) -> None:
    found = {path: data and len(data) for path, data in disk.contents().items()}
    try:
        check_recovered(disk, moment.facts, config)
    except Exception as error:
        raise AssertionError(
            f"before operation {moment.journal_size}: {error!r}; "
            f"promised {str(moment.facts)[:300]}; found {found}"
        ) from error
