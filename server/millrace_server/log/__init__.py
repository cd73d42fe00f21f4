"""The log of a partition: pure decisions and plain reads and writes over the `Disk` seam."""

from millrace_server.log.appended import Appended
from millrace_server.log.compaction.cleaning import PASSING_ERRNOS, Cleaning, Swap
from millrace_server.log.config import LogConfig
from millrace_server.log.epochs import EpochEnd
from millrace_server.log.errors import (
    CorruptLog,
    FencedProducer,
    LogClosed,
    LogFailed,
    LogRefusal,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ReadOnlyLog,
    TimestampOutOfRange,
    UnexpectedBatch,
    UnknownProducer,
)
from millrace_server.log.flush import DISK_FULL_ERRNOS, FlushTicket
from millrace_server.log.integrity.corrupt_ranges import (
    CorruptRange,
    CorruptRecords,
    RecordsUnderRepair,
)
from millrace_server.log.partition_log import PartitionLog
from millrace_server.log.producers import ActiveProducer
from millrace_server.log.reading import LogRead
from millrace_server.log.recovered import RecoveryReport
from millrace_server.log.scrub import DurableSegment
from millrace_server.log.splitting import Piece
from millrace_server.log.timestamps import Candidate, FoundTime

__all__ = [
    "DISK_FULL_ERRNOS",
    "PASSING_ERRNOS",
    "ActiveProducer",
    "Appended",
    "Candidate",
    "Cleaning",
    "CorruptLog",
    "CorruptRange",
    "CorruptRecords",
    "DurableSegment",
    "EpochEnd",
    "FencedProducer",
    "FlushTicket",
    "FoundTime",
    "LogClosed",
    "LogConfig",
    "LogFailed",
    "LogRead",
    "LogRefusal",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "PartitionLog",
    "Piece",
    "ReadOnlyLog",
    "RecordsUnderRepair",
    "RecoveryReport",
    "Swap",
    "TimestampOutOfRange",
    "UnexpectedBatch",
    "UnknownProducer",
]
