"""What the signals of a broker's process ask for: to stop, or to read the configuration again.

    SIGTERM, SIGINT  the broker drains; a second one ends the process at once
    SIGHUP           the broker reads its configuration again; if its terminal has gone, it drains

The kernel and the shell send SIGHUP too when a terminal is closed. The process has no controlling
terminal any more then, which tells their signal from that of an operator. A process that ignored
SIGHUP when it began (`nohup`) outlives its terminal. Sources: tty(4), nohup(1), signal(7).
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal

_TERMINAL = "/dev/tty"
_ENDING = (signal.SIGTERM, signal.SIGINT)
_HANGUP = frozenset({signal.SIGHUP})


class ProcessSignals:
    """Made when the process begins, then `listen` on its loop and `close`, in the main thread.

    SIGHUP waits in the kernel until `listen`, and after `close`: then it does no harm.
    """

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANGUP)
        self.stop = asyncio.Event()
        """Set when the broker is to drain, and for good."""
        self.reload = asyncio.Event()
        """Set when the configuration is to be read; the reader clears it first."""
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._ends_with_terminal = not ignored and _has_terminal()

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Takes the signals of the process, and SIGHUP that came before."""
        self._loop = loop
        for number in _ENDING:
            loop.add_signal_handler(number, self._on_ending)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANGUP)

    def close(self) -> None:
        """Before the loop is closed, which gives SIGHUP back the kernel's default."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANGUP)

    def _on_ending(self) -> None:
        self.stop.set()
        # The kernel's default for the next one: it ends the process even if the loop is stuck.
        for number in _ENDING:
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    def _on_hangup(self) -> None:
        if self._ends_with_terminal and not _has_terminal():
            self.stop.set()
        else:
            self.reload.set()


def _has_terminal() -> bool:
    """Whether the process has a controlling terminal."""
    try:
        os.close(os.open(_TERMINAL, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError as error:
        # Without a free descriptor there is no answer, and a terminal that was there stays.
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return True
