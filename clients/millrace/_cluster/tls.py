"""TLS of a client: the context of its connections, from its addresses and its settings."""

from __future__ import annotations

import ssl

from millrace.config import ClientConfig, Servers, has_tls_scheme
from millrace.errors import ConfigError


def tls_context(servers: Servers, config: ClientConfig) -> ssl.SSLContext | None:
    """The context for connections to `servers`; None for those without TLS.

    Reads the files of the settings. Raises `ConfigError`.
    """
    if not (config.tls or has_tls_scheme(servers)):
        for name in ("tls_ca", "tls_certificate"):
            if getattr(config, name):
                raise ConfigError(
                    f"{name}: is for TLS; put tls:// before the address, or set tls=True"
                )
        return None
    try:
        context = ssl.create_default_context(cafile=config.tls_ca or None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"tls_ca: {config.tls_ca} {_reason(error)}") from error
    if config.tls_certificate:
        try:
            context.load_cert_chain(config.tls_certificate, config.tls_key or None, _no_password)
        except (OSError, ValueError) as error:
            files = " and ".join(filter(None, (config.tls_certificate, config.tls_key)))
            raise ConfigError(f"tls_certificate: {files} {_reason(error)}") from error
    return context


def _no_password() -> str:
    raise ValueError("has a key that is encrypted, and there is no setting for its password")


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "do not belong together: the key is not that of the certificate"
        return "is no PEM file of what is needed"
    return f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
