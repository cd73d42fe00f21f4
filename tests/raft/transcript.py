"""Transcripts: what one replica does, event by event, as text that a person can read.

A file has lines that begin with `>`: events. Behind each stand the effects, as the replica gave
them. `pytest tests/raft --rewrite-transcripts` writes them anew; read the difference then.

    > start 1 of 1 2 3 [epoch E] [leader L] [log EPOCH EPOCH ...]
    > at MS                                              the clock
    > deadline                                           the clock goes to the next deadline
    > vote? FROM epoch E last EPOCH@END [pre]            the request of another replica
    > vote FROM epoch E yes|no [leader L] [pre]          its response
    > stale FROM epoch E [leader L]                      it refuses what is of an older epoch
    > begin FROM epoch E
    > end FROM epoch E successors ID ...
    > fetch FROM epoch E offset N last EPOCH hw N
    > records FROM epoch E hw N [EPOCH ...]              the response to the fetch that is out
    > diverging FROM epoch E at EPOCH@END
    > truncated
    > append VALUE
    > durable                                            all of the log is on the disk
    > remove ID
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from millrace_server.log.epochs import EpochEnd
from millrace_server.raft.config import RaftConfig
from millrace_server.raft.effects import (
    AdvanceHighWatermark,
    Append,
    AppendVoters,
    BeginEpoch,
    Effect,
    EndEpoch,
    Persist,
    Send,
    Truncate,
)
from millrace_server.raft.election_state import ElectionState
from millrace_server.raft.messages import (
    BeginEpochRequest,
    Diverging,
    EndEpochRequest,
    FetchOutcome,
    FetchRequest,
    FetchResponse,
    LogPosition,
    NotLeader,
    Records,
    SnapshotNeeded,
    StaleEpochResponse,
    VoteRequest,
    VoteResponse,
)
from millrace_server.raft.node import RaftNode, VoterChangeRefused
from millrace_server.raft.roles import Follower
from millrace_server.raft.voters import ReplicaKey, Voter, VoterSet
from tests.raft.replica_log import Entry, ReplicaLog


def _key(text: str | int) -> ReplicaKey:
    return ReplicaKey(int(text), uuid.UUID(int=int(text)))


def _option(words: list[str], name: str, default: str = "0") -> str:
    return words[words.index(name) + 1] if name in words else default


def _position(text: str) -> tuple[int, int]:
    epoch, _, end_offset = text.partition("@")
    return int(epoch), int(end_offset)


def replayed(text: str) -> str:
    """The transcript with the effects that the replica gives today."""
    replica = _Replica()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(">"):
            lines += [line, *(f"  {effect}" for effect in replica.run(line[1:].split()))]
        elif not line.startswith("  "):
            lines.append(line)
    return "\n".join(lines) + "\n"


class _Replica:
    def __init__(self) -> None:
        self._now_ms = 0

    def run(self, words: list[str]) -> Iterator[str]:
        event, *rest = words
        try:
            effects = getattr(self, f"_do_{event.replace('?', '_request')}")(rest)
        except VoterChangeRefused as error:
            yield f"refused: {error}"
            return
        for effect in effects:
            yield _shown(effect)
            self._carry_out(effect)
        replica = self._node.replica
        role = type(replica.role).__name__
        yield f"= {role} of epoch {replica.epoch}, hw {replica.high_watermark}"

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case BeginEpoch():
                self._log.append(Entry(effect.epoch, "leader"))
            case Append():
                assert isinstance(effect.records.data, list)
                for entry in effect.records.data:
                    self._log.append(entry)
            case Truncate():
                self._log.truncate_to(effect.end_offset)

    def _do_start(self, words: list[str]) -> list[Effect]:
        own, of = words[0], words.index("of")
        numbers = [w for w in words[of + 1 :] if w.isdigit()]
        for name in ("epoch", "leader", "log"):
            if name in words:
                numbers = [w for w in words[of + 1 : words.index(name)] if w.isdigit()]
                break
        voters = VoterSet.of(Voter(_key(n), "host", int(n)) for n in numbers)
        self._log = ReplicaLog(voters)
        for epoch in words[words.index("log") + 1 :] if "log" in words else ():
            self._log.append(Entry(int(epoch), "value"))
        self._log.durable_offset = self._log.end_offset
        leader = _option(words, "leader", "")
        state = ElectionState(int(_option(words, "epoch")), None, int(leader) if leader else None)
        self._node = RaftNode(
            _key(own), self._log, self._log.history(), state, RaftConfig(), lambda n: 0
        )
        return self._node.start(self._now_ms)

    def _do_at(self, words: list[str]) -> list[Effect]:
        self._now_ms = int(words[0])
        return self._node.on_deadline(self._now_ms)

    def _do_deadline(self, words: list[str]) -> list[Effect]:
        self._now_ms = self._node.deadline_ms() or self._now_ms
        return self._node.on_deadline(self._now_ms)

    def _do_vote_request(self, words: list[str]) -> list[Effect]:
        return self._step(
            VoteRequest(
                _key(words[0]),
                self._node.replica.key.broker_id,
                int(_option(words, "epoch")),
                self._node.replica.key,
                LogPosition(*_position(_option(words, "last"))),
                "pre" in words,
            )
        )

    def _do_vote(self, words: list[str]) -> list[Effect]:
        leader = _option(words, "leader", "")
        return self._step(
            VoteResponse(
                _key(words[0]),
                self._node.replica.key.broker_id,
                int(_option(words, "epoch")),
                int(leader) if leader else None,
                "yes" in words,
                "pre" in words,
            )
        )

    def _do_stale(self, words: list[str]) -> list[Effect]:
        own_id, leader = self._node.replica.key.broker_id, _option(words, "leader", "")
        return self._step(
            StaleEpochResponse(
                _key(words[0]),
                own_id,
                int(_option(words, "epoch")),
                int(leader) if leader else None,
            )
        )

    def _do_begin(self, words: list[str]) -> list[Effect]:
        own_id = self._node.replica.key.broker_id
        return self._step(BeginEpochRequest(_key(words[0]), own_id, int(_option(words, "epoch"))))

    def _do_end(self, words: list[str]) -> list[Effect]:
        own_id, epoch = self._node.replica.key.broker_id, int(_option(words, "epoch"))
        successors = tuple(map(int, words[words.index("successors") + 1 :]))
        return self._step(EndEpochRequest(_key(words[0]), own_id, epoch, successors))

    def _do_fetch(self, words: list[str]) -> list[Effect]:
        return self._step(
            FetchRequest(
                _key(words[0]),
                self._node.replica.key.broker_id,
                int(_option(words, "epoch")),
                7,
                int(_option(words, "offset")),
                int(_option(words, "last")),
                int(_option(words, "hw")),
            )
        )

    def _do_records(self, words: list[str]) -> list[Effect]:
        epochs = words[words.index("hw") + 2 :]
        entries = [Entry(int(epoch), "value") for epoch in epochs]
        return self._respond(words, Records(self._log.end_offset, entries))

    def _do_diverging(self, words: list[str]) -> list[Effect]:
        return self._respond(words, Diverging(EpochEnd(*_position(_option(words, "at")))))

    def _respond(self, words: list[str], outcome: FetchOutcome) -> list[Effect]:
        replica = self._node.replica
        assert isinstance(replica.role, Follower) and replica.role.fetch_id is not None
        source, epoch = _key(words[0]), int(_option(words, "epoch"))
        return self._step(
            FetchResponse(
                source,
                replica.key.broker_id,
                epoch,
                replica.role.fetch_id,
                source.broker_id,
                int(_option(words, "hw")),
                outcome,
            )
        )

    def _do_truncated(self, words: list[str]) -> list[Effect]:
        return self._node.on_truncated(self._now_ms)

    def _do_gone(self, words: list[str]) -> list[Effect]:
        return self._node.on_process_gone(int(words[0]), self._now_ms)

    def _do_append(self, words: list[str]) -> list[Effect]:
        self._log.append(Entry(self._node.replica.epoch, words[0]))
        return self._node.on_appended(self._now_ms)

    def _do_durable(self, words: list[str]) -> list[Effect]:
        self._log.durable_offset = self._log.end_offset
        return self._node.on_durable(self._now_ms)

    def _do_remove(self, words: list[str]) -> list[Effect]:
        return self._node.remove_voter(_key(words[0]), self._now_ms)

    def _step(self, message: object) -> list[Effect]:
        return self._node.step(message, self._now_ms)  # type: ignore[arg-type]


def _shown(effect: Effect) -> str:
    match effect:
        case Persist(state):
            voted = "none" if state.voted is None else state.voted.broker_id
            return f"persist epoch {state.epoch}, voted {voted}, leader {state.leader_id}"
        case Send(message):
            return f"to {message.destination}: {_shown_message(message)}"
        case BeginEpoch(epoch):
            return f"begin epoch {epoch}"
        case EndEpoch(epoch):
            return f"end epoch {epoch}"
        case Append(records):
            count = len(records.data) if isinstance(records.data, list) else 0
            return f"append {count} records at {records.offset}"
        case Truncate(end_offset):
            return f"truncate to {end_offset}"
        case AdvanceHighWatermark(offset):
            return f"commit before {offset}"
        case AppendVoters(voters):
            return f"append voters {' '.join(str(key.broker_id) for key in voters.keys)}"
        case _:
            return str(effect)


def _shown_message(message: object) -> str:
    match message:
        case VoteRequest():
            last = message.last
            kind = "pre-vote?" if message.is_pre_vote else "vote?"
            return f"{kind} epoch {message.epoch} last {last.epoch}@{last.end_offset}"
        case VoteResponse():
            kind = "pre-vote" if message.is_pre_vote else "vote"
            return f"{kind} epoch {message.epoch} {'yes' if message.is_granted else 'no'}"
        case BeginEpochRequest():
            return f"begin epoch {message.epoch}"
        case EndEpochRequest():
            return f"end epoch {message.epoch}, successors {message.successors}"
        case StaleEpochResponse():
            return f"stale, epoch is {message.epoch}"
        case FetchRequest():
            return (
                f"fetch epoch {message.epoch} from {message.last_epoch}@{message.fetch_offset} "
                f"hw {message.high_watermark}"
            )
        case FetchResponse():
            outcome = _shown_outcome(message.outcome)
            return f"{outcome}, epoch {message.epoch} hw {message.high_watermark}"
        case _:
            return str(message)


def _shown_outcome(outcome: FetchOutcome) -> str:
    match outcome:
        case Records():
            return f"records from {outcome.offset}"
        case Diverging():
            return f"diverging at {outcome.end.epoch}@{outcome.end.end_offset}"
        case SnapshotNeeded():
            return f"snapshot {outcome.snapshot.epoch}@{outcome.snapshot.end_offset}"
        case NotLeader():
            return "not leader"
