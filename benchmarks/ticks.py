"""A timer that fires on a schedule, in microseconds: the kernel's timerfd.

Event loops round their timers to milliseconds, which is more than the latency that is measured
with this. The schedule is absolute: a tick that is handled late does not move the next one.
"""

from __future__ import annotations

import ctypes
import os
import time

_TFD_TIMER_ABSTIME = 1
_COUNT_BYTES = 8


class _TimerSpec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


class Ticks:
    """Readable from `first_ns` on the clock of `time.monotonic_ns`, then every `interval_ns`."""

    def __init__(self, first_ns: int, interval_ns: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        spec = _TimerSpec(*divmod(interval_ns, 10**9), *divmod(first_ns, 10**9))
        if libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None):
            error = ctypes.get_errno()
            self.close()
            raise OSError(error, "timerfd_settime failed")

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._fd

    def clear(self) -> None:
        """Takes the ticks so far, so that the descriptor is readable at the next one only."""
        os.read(self._fd, _COUNT_BYTES)

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self._fd)
