"""The decision table of recovery: torn tail or corruption.

Owns what becomes of the bytes at which a scan ended. Refuses to know files. A torn tail is cut,
corruption is refused; the difference is whether the bytes were known to be durable.
Source: the durability table of the docs; TigerBeetle's recovery by decision table.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from millrace_server.log.integrity.scan import Ending


class Standing(Enum):
    """What is known of the place where the scan ended."""

    DURABLE = "before the checkpoint's end or the recovery point"
    UNSYNCED = "behind both"
    UNKNOWN_LAST = "no checkpoint, behind the recovery point if there is one, in the last segment"
    UNKNOWN_EARLIER = "the same in an earlier segment"


class Verdict(Enum):
    """What becomes of it."""

    KEEP = "nothing to do"
    TRIM = "cut the file here, go on with the next segment"
    CUT = "cut the log here"
    REFUSE = "touch nothing, raise CorruptLog"


_K, _T, _C, _R = Verdict.KEEP, Verdict.TRIM, Verdict.CUT, Verdict.REFUSE
_STANDINGS: Final = tuple(Standing)
_TABLE: Final = {
    #                 DURABLE UNSYNCED UNKNOWN_LAST UNKNOWN_EARLIER
    Ending.WHOLE: (_K, _K, _K, _K),
    Ending.CONTINUED: (_T, _T, _T, _T),
    Ending.UNWRITTEN: (_R, _T, _T, _T),
    Ending.TORN: (_R, _C, _C, _R),
    Ending.BAD: (_R, _C, _C, _R),
    Ending.DAMAGED: (_R, _C, _R, _R),
    Ending.MISSING: (_R, _C, _R, _R),
}


def verdict(ending: Ending, standing: Standing) -> Verdict:
    """Looks up what recovery does with the bytes from there on.

    A torn write can leave later pages whole before earlier ones, so behind the recovery point
    even `DAMAGED` is cut: none of it was acknowledged as durable, unless a power cut has left an
    old recovery point. Without a checkpoint, which no crash destroys, that is not known, and a
    whole batch behind a bad one is evidence of corruption.
    """
    return _TABLE[ending][_STANDINGS.index(standing)]
