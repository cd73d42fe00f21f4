"""The extra `metrics`: its libraries are imported when the setting asks for them, and only then.

Importing them takes some 30 ms, which a start without the setting does not spend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millrace_server.config import BrokerConfig, ConfigError

if TYPE_CHECKING:
    from millrace_server.monitoring.server import MonitoringServer
    from millrace_server.node import Node

MonitoringOf = Callable[["Node"], "MonitoringServer"]
"""Makes the listener for metrics of a node."""
_LIBRARIES = ("h11", "prometheus_client")


def monitoring_of(config: BrokerConfig) -> MonitoringOf | None:
    """What the setting asks for; None if it is not given.

    Raises `ConfigError` if its libraries are not installed.
    """
    if config.metrics_address is None:
        return None
    try:
        from millrace_server.monitoring.server import MonitoringServer
    except ModuleNotFoundError as error:
        if error.name not in _LIBRARIES:
            raise
        source = config.sources.get("metrics_listen", "configuration")
        raise ConfigError(
            "metrics_listen", source, f"needs {error.name}: pip install 'millrace[metrics]'"
        ) from None
    return MonitoringServer
