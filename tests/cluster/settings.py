"""Settings of the brokers in tests of clusters."""

from __future__ import annotations

from typing import Any

SETTINGS: dict[str, Any] = {
    "broker_session_timeout_ms": 1_000,
    "broker_heartbeat_interval_ms": 200,
    # Records of tests may be old, and nothing is to be removed meanwhile.
    "housekeeping_interval_ms": 86_400_000,
}
"""A broker that is killed is replaced after a second."""
