"""TAIL: new records as lines, for as long as the peer listens.

An object in the partition's watch list, without a task: it works when the high watermark moves
or when the peer has taken what was sent, and at no other time, and then in its turn: a record that
a thousand of them follow is written a thousand times, between the requests of others.
"""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_server.broker.partition import Partition
from millrace_server.broker.refusals import CORE_REFUSALS, as_refused
from millrace_server.dialects.text.commands import read_lines
from millrace_server.dialects.text.lines import error_line, reply
from millrace_server.net.stream import Stream
from millrace_server.net.turns import Turns
from millrace_server.refusal import Refused

PIECE_RECORDS = 100
PIECE_CHARACTERS = 64 << 10
"""Sent in one go, whichever is reached first; between pieces other connections have their turn."""


class Tail:
    """Follows one partition from its high watermark on, until `close` or an error."""

    __slots__ = ("_offset", "_partition", "_scheduled", "_stream", "_turns")

    def __init__(self, partition: Partition, stream: Stream, turns: Turns) -> None:
        self._turns = turns
        self._offset = partition.high_watermark
        self._partition = partition
        self._scheduled = False
        self._stream = stream
        partition.watchers[self._look_soon] = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will be sent."""
        return self._stream.ended

    def close(self) -> None:
        """The peer is gone."""
        self._partition.watchers.pop(self._look_soon, None)

    def _look_soon(self) -> None:
        # Not at once: a watcher is called in the midst of somebody's append.
        if not self._scheduled:
            self._scheduled = True
            self._turns.enter(self._send_piece)

    def _send_piece(self) -> None:
        self._scheduled = False
        if self._stream.ended:
            self.close()
            return
        try:
            if self._partition.is_abandoned:
                raise _deleted(self._partition)
            lines, self._offset = read_lines(
                self._partition, self._offset, PIECE_RECORDS, room=PIECE_CHARACTERS
            )
        except CORE_REFUSALS as error:
            self.close()
            self._stream.finish(reply([error_line(as_refused(error))]))
            return
        if not lines:
            return
        if self._stream.send(reply(lines)):
            self._look_soon()
        else:
            self._scheduled = True
            self._stream.room().add_done_callback(lambda _: self._turns.enter(self._send_piece))


def _deleted(partition: Partition) -> Refused:
    return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {partition.topic!r} was deleted")
