"""What a client's connections are protected with: TLS, and a login."""

from __future__ import annotations

import ssl
from typing import TypedDict

from millrace._cluster.login import Login, login_of
from millrace._cluster.tls import tls_context
from millrace.config import ClientConfig, Servers


class Security(TypedDict):
    """Arguments of `Cluster`."""

    tls: ssl.SSLContext | None
    login: Login | None


def security(servers: Servers, config: ClientConfig) -> Security:
    """From the addresses and the settings of a client. Raises `ConfigError`."""
    tls = tls_context(servers, config)
    return Security(tls=tls, login=login_of(config, has_tls=tls is not None))
