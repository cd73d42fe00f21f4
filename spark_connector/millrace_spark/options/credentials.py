"""Who a read or a write is to the brokers, and what it trusts: the options of TLS and of a login.

Owns their names and their checks. They are settings of the clients, and go to every task, whose
clients connect with them. A path is one on the machine of each executor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from millrace.config import ClientConfig, ClientOptions
from millrace.errors import ConfigError
from millrace_spark.errors import OptionError

_SETTINGS = {
    "tlsCa": "tls_ca",
    "tlsCertificate": "tls_certificate",
    "tlsKey": "tls_key",
    "username": "username",
    "password": "password",
    "token": "token",
    "saslMechanism": "sasl_mechanism",
}
NAMES = tuple(_SETTINGS)
_OPTIONS = {setting: option for option, setting in _SETTINGS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The settings of `millrace.config.ClientConfig` with these names. Raises `ConfigError`."""

    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    sasl_mechanism: str = ""

    def __post_init__(self) -> None:
        ClientConfig(**self.client_options())

    def client_options(self) -> ClientOptions:
        """Keyword arguments of a client."""
        return self._given()  # type: ignore[return-value]

    def options(self) -> dict[str, str]:
        """The options of a read or a write that make the same credentials."""
        return {_OPTIONS[setting]: text for setting, text in self._given().items()}

    def _given(self) -> dict[str, str]:
        return {each.name: text for each in fields(self) if (text := getattr(self, each.name))}


NO_CREDENTIALS = Credentials()
"""Of a client that does not say who it is, and trusts what OpenSSL trusts by default."""


def parse_credentials(given: Mapping[str, str]) -> Credentials:
    """The credentials among options by their canonical names. Raises `OptionError`.

    >>> parse_credentials({"username": "ada", "password": "secret"})
    Credentials(tls_ca='', tls_certificate='', tls_key='', username='ada', sasl_mechanism='')
    """
    settings = {_SETTINGS[name]: given[name] for name in NAMES if name in given}
    try:
        return Credentials(**settings)
    except ConfigError as error:
        name, _, reason = str(error).partition(": ")
        raise OptionError(_OPTIONS.get(name, name), reason) from None


def credentials_of(options: ClientOptions) -> Credentials:
    """The credentials in the settings of a client. Raises `ConfigError`."""
    return Credentials(**{name: options[name] for name in _OPTIONS if name in options})  # type: ignore[literal-required]
