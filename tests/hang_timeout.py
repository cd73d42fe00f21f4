"""The longest wait of a test for an event that is certain to happen.

A test that passes never waits so long, whatever else the machine does: the bound only ends a test
that hangs, before `pytest-timeout` ends the whole process with it.
"""

from __future__ import annotations

HANG_TIMEOUT_S = 120.0
