"""Who the commands are to a broker: the client id, and the user of the environment.

Owns the variables. A password is no flag, because every user of a machine sees the arguments of its
processes.
"""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.config import ClientOptions

CLIENT_ID = "millrace-cli"
USERNAME = "MILLRACE_USERNAME"
PASSWORD = "MILLRACE_PASSWORD"
PASSWORD_FILE = "MILLRACE_PASSWORD_FILE"
MECHANISM = "MILLRACE_SASL_MECHANISM"
TOKEN = "MILLRACE_TOKEN"
CREDENTIALS_HELP = (
    f"For listeners with SASL: {USERNAME}, and {PASSWORD} or {PASSWORD_FILE}; or {TOKEN}."
)


def identity(client_id: str = CLIENT_ID) -> ClientOptions:
    """Keyword arguments of a client: its id, and its user if the environment names one.

    Asks on a terminal for a password that is missing. Raises `ConfigError`.
    """
    options: ClientOptions = {"client_id": client_id}
    environment = os.environ
    if mechanism := environment.get(MECHANISM):
        options["sasl_mechanism"] = mechanism  # type: ignore[typeddict-item]
    if token := environment.get(TOKEN):
        options["token"] = token
    if username := environment.get(USERNAME):
        options["username"] = username
        options["password"] = _password(username)
    return options


def read_password(path: str) -> str:
    """The first line of a file. Raises `ConfigError`."""
    from millrace.errors import ConfigError

    try:
        return Path(path).read_text("utf-8").partition("\n")[0].removesuffix("\r")
    except OSError as error:
        raise ConfigError(f"the password in {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the password in {path} is not UTF-8") from None


def _password(username: str) -> str:
    from millrace.errors import ConfigError

    if password := os.environ.get(PASSWORD):
        return password
    if path := os.environ.get(PASSWORD_FILE):
        return read_password(path)
    if not sys.stdin.isatty():
        raise ConfigError(
            f"password: {USERNAME} is set; set {PASSWORD} too, or {PASSWORD_FILE} to a file with it"
        )
    # One question for all clients of the command.
    os.environ[PASSWORD] = getpass.getpass(f"Password of {username}: ")
    return os.environ[PASSWORD]
