"""Transcripts: what one replica does, event by event, as text that a person can read.

A file has lines that begin with `>`: events. Behind each stand the outcome of a fetch and the
effects, as the core gave them. `pytest tests/replication --rewrite-transcripts` writes them anew;
read the difference then.

    > leader ID epoch E of ID ... [isr ID ...] [min N] [hw N] [start N] [log EPOCH ...]
    > fetch ID epoch E offset N last EPOCH [process N] [session N]
    > append [N] | durable                               the leader's log
    > image partition N isr ID ... [min N]               a newer state of the partition
    > fence ID | unfence ID | register ID process N      a broker in the image
    > accepted [partition N] | refused | undecided       how the proposal that is out ended
    > deadline | at MS                                   the clock
    > check                                              may acks=all append?

    > follower epoch E [hw N] [start N] [log EPOCH ...] [lossy]
    > records hw N start N [EPOCH ...]                   responses to the position that it asks for
    > diverging EPOCH@END | out-of-range N | refuse
    > durable | truncated | reset                        the ends of its effects
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millrace_protocol.errors import ErrorCode
from millrace_server.log.epochs import EpochEnd
from millrace_server.replication.config import ReplicationConfig
from millrace_server.replication.effects import (
    AdvanceHighWatermark,
    AdvanceStart,
    Append,
    FollowerEffect,
    LeaderEffect,
    ProposeIsr,
    ReportLoss,
    Reset,
    Truncate,
)
from millrace_server.replication.errors import NotEnoughReplicas
from millrace_server.replication.follower import PartitionFollower
from millrace_server.replication.isr import PartitionState
from millrace_server.replication.leader import BrokerState, PartitionLeader
from millrace_server.replication.messages import (
    BrokerKey,
    Diverging,
    FetchOutcome,
    FetchPosition,
    FetchResult,
    OutOfRange,
    Records,
    Refused,
)
from tests.replication.replica_log import Entry, ReplicaLog

Effects = Sequence[LeaderEffect | FollowerEffect]


def replayed(text: str) -> str:
    """The transcript with what the cores give today."""
    lines: list[str] = []
    replica: _Leader | _Follower | None = None
    for line in text.splitlines():
        if line.startswith(">"):
            words = line[1:].split()
            if words[0] in ("leader", "follower"):
                replica = _Leader(words) if words[0] == "leader" else _Follower(words)
                given = [replica.state()]
            else:
                assert replica is not None
                given = list(replica.run(words))
            lines += [line, *(f"  {shown}" for shown in given)]
        elif not line.startswith("  "):
            lines.append(line)
    return "\n".join(lines) + "\n"


def _numbers(words: list[str], name: str, default: Sequence[int] = ()) -> list[int]:
    """The numbers behind a word."""
    if name not in words:
        return list(default)
    found: list[int] = []
    for word in words[words.index(name) + 1 :]:
        if not word.lstrip("-").isdigit():
            break
        found.append(int(word))
    return found


def _number(words: list[str], name: str, default: int = 0) -> int:
    return next(iter(_numbers(words, name)), default)


def _log(words: list[str]) -> ReplicaLog:
    log = ReplicaLog(is_synced=True)
    log.reset(_number(words, "start"))
    for epoch in _numbers(words, "log"):
        log.append(Entry(epoch, "value"))
    log.recover()
    return log


class _Leader:
    def __init__(self, words: list[str]) -> None:
        replicas = tuple(_numbers(words, "of"))
        self._id = int(words[1])
        self._log = _log(words)
        self._epoch = _number(words, "epoch")
        self._log.begin_epoch(self._epoch)
        self._log.recover()
        self._brokers = {number: BrokerState(1, True) for number in replicas}
        isr = tuple(_numbers(words, "isr", replicas))
        state = PartitionState(self._epoch, 1, replicas, isr, _number(words, "min", 1))
        self._now_ms = 0
        self._proposal: ProposeIsr | None = None
        self._leader = PartitionLeader(
            self._id,
            self._log,
            state,
            self._brokers,
            ReplicationConfig(),
            high_watermark=_number(words, "hw"),
            now_ms=0,
        )

    def state(self) -> str:
        leader = self._leader
        isr = " ".join(map(str, sorted(leader.isr.committed)))
        maximal = " ".join(map(str, sorted(leader.isr.maximal)))
        more = "" if isr == maximal else f", perhaps {maximal}"
        return f"= hw {leader.high_watermark} of {self._log.end_offset}, isr {isr}{more}"

    def run(self, words: list[str]) -> Iterator[str]:
        for shown in getattr(self, f"_do_{words[0]}")(words):
            if isinstance(shown, ProposeIsr):
                self._proposal = shown
            yield shown if isinstance(shown, str) else _shown(shown)
        yield self.state()

    def _do_fetch(self, words: list[str]) -> list[object]:
        position = FetchPosition(
            _number(words, "epoch"), _number(words, "offset"), _number(words, "last"), 0
        )
        follower = BrokerKey(int(words[1]), _number(words, "process", 1))
        outcome, effects = self._leader.on_fetch(
            follower, position, self._now_ms, session=_number(words, "session")
        )
        return [_shown_outcome(outcome), *effects]

    def _do_append(self, words: list[str]) -> Effects:
        for _ in range(_number(words, "append", 1)):
            self._log.append(Entry(self._epoch, "value"))
        return self._leader.on_appended(self._now_ms)

    def _do_durable(self, words: list[str]) -> Effects:
        self._log.recover()
        return self._leader.on_acked(self._now_ms)

    def _do_image(self, words: list[str]) -> Effects:
        before = self._leader.state
        state = PartitionState(
            self._epoch,
            _number(words, "partition"),
            before.replicas,
            tuple(_numbers(words, "isr")),
            _number(words, "min", before.min_isr),
        )
        return self._leader.on_image(state, self._now_ms)

    def _do_fence(self, words: list[str]) -> Effects:
        return self._change(int(words[1]), may_join=False)

    def _do_unfence(self, words: list[str]) -> Effects:
        return self._change(int(words[1]), may_join=True)

    def _do_register(self, words: list[str]) -> Effects:
        self._brokers[int(words[1])] = BrokerState(_number(words, "process"), True)
        return self._leader.on_brokers_changed(self._now_ms)

    def _change(self, number: int, *, may_join: bool) -> Effects:
        self._brokers[number] = BrokerState(self._brokers[number].epoch, may_join)
        return self._leader.on_brokers_changed(self._now_ms)

    def _do_accepted(self, words: list[str]) -> Effects:
        proposal = self._out()
        partition_epoch = _number(words, "partition", proposal.partition_epoch + 1)
        ids = proposal.broker_ids
        return self._leader.on_accepted(proposal, ids, partition_epoch, self._now_ms)

    def _do_refused(self, words: list[str]) -> Effects:
        return self._leader.on_refused(self._out(), self._now_ms)

    def _do_undecided(self, words: list[str]) -> Effects:
        return self._leader.on_undecided(self._out(), self._now_ms)

    def _out(self) -> ProposeIsr:
        assert self._proposal is not None
        return self._proposal

    def _do_deadline(self, words: list[str]) -> list[object]:
        due_ms = self._leader.deadline_ms()
        if due_ms is None:
            return ["no deadline"]
        self._now_ms = due_ms
        return [f"at {due_ms} ms", *self._leader.on_deadline(due_ms)]

    def _do_at(self, words: list[str]) -> Effects:
        self._now_ms = int(words[1])
        return self._leader.on_deadline(self._now_ms)

    def _do_check(self, words: list[str]) -> list[object]:
        try:
            self._leader.check_append()
        except NotEnoughReplicas as error:
            return [f"refused: {error}"]
        return ["allowed"]


class _Follower:
    def __init__(self, words: list[str]) -> None:
        self._log = _log(words)
        self._follower = PartitionFollower(
            self._log,
            leader_epoch=_number(words, "epoch"),
            high_watermark=_number(words, "hw"),
            allows_loss="lossy" in words,
        )

    def state(self) -> str:
        follower, position = self._follower, self._follower.position()
        asks = "asks for nothing"
        if position is not None:
            epoch, offset = position.last_epoch, position.fetch_offset
            asks = f"asks for {epoch}@{offset} in epoch {position.leader_epoch}"
        log = f"log {self._log.start_offset} to {self._log.end_offset}"
        return f"= {follower.state.name}, {log}, hw {follower.high_watermark}, {asks}"

    def run(self, words: list[str]) -> Iterator[str]:
        for effect in getattr(self, f"_do_{words[0].replace('-', '_')}")(words):
            yield _shown(effect)
            self._carry_out(effect)
        yield self.state()

    def _carry_out(self, effect: object) -> None:
        match effect:
            case Append(records):
                assert isinstance(records.data, tuple)
                for entry in records.data:
                    self._log.append(entry)
            case Truncate():
                self._log.truncate_to(effect.end_offset)
            case Reset():
                self._log.reset(effect.start_offset)
            case AdvanceStart():
                self._log.advance_start(effect.offset)

    def _do_records(self, words: list[str]) -> Effects:
        entries = tuple(Entry(epoch, "value") for epoch in _numbers(words, "start")[1:])
        records = Records(self._log.end_offset, entries or None)
        return self._respond(FetchResult(records, _number(words, "hw"), _number(words, "start")))

    def _do_diverging(self, words: list[str]) -> Effects:
        epoch, _, end_offset = words[1].partition("@")
        return self._respond(FetchResult(Diverging(EpochEnd(int(epoch), int(end_offset)))))

    def _do_out_of_range(self, words: list[str]) -> Effects:
        return self._respond(FetchResult(OutOfRange(int(words[1]))))

    def _do_refuse(self, words: list[str]) -> Effects:
        return self._respond(FetchResult(Refused(ErrorCode.FENCED_LEADER_EPOCH)))

    def _respond(self, result: FetchResult) -> Effects:
        position = self._follower.position()
        assert position is not None
        return self._follower.on_result(position, result)

    def _do_durable(self, words: list[str]) -> Effects:
        self._log.recover()
        return self._follower.on_acked()

    def _do_truncated(self, words: list[str]) -> Effects:
        self._follower.on_truncated()
        return []

    def _do_reset(self, words: list[str]) -> Effects:
        self._follower.on_reset()
        return []


def _shown(effect: object) -> str:
    match effect:
        case AdvanceHighWatermark(offset):
            return f"commit before {offset}"
        case ProposeIsr():
            members = " ".join(f"{broker_id}/{epoch}" for broker_id, epoch in effect.isr)
            return f"propose isr {members} at partition epoch {effect.partition_epoch}"
        case Append(records):
            count = len(records.data) if isinstance(records.data, tuple) else 0
            return f"append {count} records at {records.offset}"
        case Truncate():
            return f"truncate to {effect.end_offset}, hw {effect.high_watermark}"
        case Reset():
            return f"begin anew at {effect.start_offset}, hw {effect.high_watermark}"
        case AdvanceStart(offset):
            return f"begin the log at {offset}"
        case ReportLoss(message):
            return f"report: {message}"
        case _:
            return str(effect)


def _shown_outcome(outcome: FetchOutcome) -> str:
    match outcome:
        case Records(offset):
            return f"records from {offset}"
        case Diverging(end):
            return f"diverging at {end.epoch}@{end.end_offset}"
        case OutOfRange(start_offset):
            return f"out of range, the log begins at {start_offset}"
        case Refused(code):
            return f"refused: {code.name}"
