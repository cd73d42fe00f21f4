"""`millrace nc`: send requests in the broker's protocol, and print every byte.

Owns the typed commands and the end of the session. `request_line` parses requests, `wire_session`
sends them, and `exchange` reads and writes files.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.exits import Exit, ended, output_closed
from millrace_cli.servers import DEFAULT_SERVERS

if TYPE_CHECKING:
    from millrace_cli.wire_session import WireSession

HELP = """\
  API [FIELD=VALUE ...]  send a request: `metadata`, `fetch partitions=clicks max_wait_ms=500`;
                         values are JSON or words, missing fields have defaults; API@N sends
                         version N
  raw HEX                send bytes unchanged
  save FILE              write all frames so far to a file
  replay FILE            send the requests of such a file, and compare the responses
  help [API]             this, or the fields of an api
  quit                   or ^D
"""


class _Stop(Exception):
    """`quit` was typed."""


class _Mistake(Exception):
    """The line is not a command, or its file cannot be used."""


def nc(
    server: Annotated[
        str, typer.Argument(metavar="HOST:PORT", envvar="MILLRACE_SERVERS", help="The broker.")
    ] = DEFAULT_SERVERS,
    hello: Annotated[
        bool, typer.Option("--hello/--no-hello", help="Begin each connection with a Hello.")
    ] = True,
    timeout_ms: Annotated[int, typer.Option(min=1, help="Longest wait for a response.")] = 10_000,
) -> None:
    """Type requests, and see the bytes of requests and responses, annotated.

    Reads commands from the terminal or from a pipe; type `help`. In a pipe, the first wrong line
    ends the command.

    \b
    millrace nc localhost:9092 <<'END'
    metadata
    fetch partitions={"topic": "clicks", "fetch_offset": 7}
    END
    """
    raise typer.Exit(_nc(server, hello=hello, timeout_ms=timeout_ms))


def _nc(server: str, *, hello: bool, timeout_ms: int) -> Exit:
    from millrace._cluster.tls import tls_context
    from millrace.config import ClientConfig, parse_servers
    from millrace.errors import ConfigError
    from millrace_cli.wire_session import NoResponse, WireSession

    try:
        address = parse_servers(server)[0]
        tls = tls_context(server, ClientConfig())
    except ConfigError as error:
        return ended(Exit.USAGE, error)
    session = WireSession(address, timeout_s=timeout_ms / 1000, client_id="millrace-nc", tls=tls)
    shell = _Shell(session, hello=hello)
    interactive = sys.stdin.isatty()
    try:
        shell.connect()
        for line in _typed() if interactive else sys.stdin:
            try:
                shell.run(line)
            except (_Mistake, NoResponse) as error:
                code = Exit.INPUT if isinstance(error, _Mistake) else Exit.UNAVAILABLE
                ended(code, error)
                if not interactive:
                    return code
    except NoResponse as error:
        return ended(Exit.UNAVAILABLE, error)
    except BrokenPipeError:
        return output_closed()
    except OSError as error:
        return ended(Exit.UNAVAILABLE, f"no broker at {server}: {error.strerror or error}")
    except _Stop:
        pass
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    finally:
        session.close()
    return Exit.REFUSED if session.faults else Exit.OK


def _typed() -> Iterator[str]:
    # Gives input() its line editing and history.
    with suppress(ImportError):
        import readline  # noqa: F401
    while True:
        try:
            yield input("millrace> ")
        except EOFError:
            print()
            return


class _Shell:
    """Runs the typed commands on a session."""

    def __init__(self, session: WireSession, *, hello: bool) -> None:
        self._session = session
        self._hello = hello

    def connect(self) -> None:
        """Connects if needed, and sends Hello on a new connection."""
        if self._session.connect() and self._hello:
            self._request("hello")

    def run(self, line: str) -> None:
        """Runs a line. Raises `_Mistake`, `NoResponse`, `_Stop` and `OSError`."""
        command, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        match command.lower():
            case "" | "#":
                pass
            case "quit" | "exit":
                raise _Stop
            case "help" | "?":
                self._help(rest)
            case "raw":
                self._raw(rest)
            case "save":
                self._save(rest)
            case "replay":
                self._replay(rest)
            case "hello":
                # Not connect(), which would send it twice.
                self._session.connect()
                self._request(line)
            case _:
                if not command.startswith("#"):
                    self._parse(line)
                    self.connect()
                    self._request(line)

    def _parse(self, line: str) -> None:
        """Raises `_Mistake` before anything is sent."""
        from millrace_cli.formats.request_line import RequestError, read_request

        try:
            read_request(line, now_ms=0)
        except RequestError as error:
            raise _Mistake(str(error)) from None

    def _request(self, line: str) -> None:
        from millrace_cli.formats.request_line import read_request

        try:
            api, version, request = read_request(line, now_ms=time.time_ns() // 1_000_000)
            wait_ms = getattr(request, "max_wait_ms", 0)
            self._session.request(api.key, version, request, wait_ms=wait_ms)
        except ValueError as error:
            # A `RequestError`, or a number that does not fit its field.
            raise _Mistake(str(error)) from None

    def _help(self, name: str) -> None:
        from millrace_cli.formats.request_line import RequestError, api_help, apis_help, find_api

        if not name:
            print(HELP)
            print("\n".join(apis_help()))
            return
        try:
            print("\n".join(api_help(find_api(name))))
        except RequestError as error:
            raise _Mistake(str(error)) from None

    def _raw(self, text: str) -> None:
        from millrace_protocol.dissect import HexError, read_hex

        try:
            data = b"".join(read_hex(text))
        except HexError as error:
            raise _Mistake(f"raw: {error.reason}") from None
        if not data:
            raise _Mistake("raw: give hex, such as `raw 0000 001b 4d52 0012 ...`")
        # No Hello, so that the connection begins with these bytes.
        self._session.connect()
        self._session.send_raw(data)

    def _save(self, name: str) -> None:
        from millrace_cli.formats.exchange import write_exchange

        if not name:
            raise _Mistake("save: name a file")
        try:
            with Path(name).open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in write_exchange(self._session.transcript))
        except OSError as error:
            raise _Mistake(f"save: {name}: {error.strerror}") from None
        print(f"saved {len(self._session.transcript)} frames to {name}")

    def _replay(self, name: str) -> None:
        from millrace_cli.formats.exchange import ExchangeError, read_exchange

        try:
            saved = read_exchange(Path(name).read_text("utf-8"))
        except OSError as error:
            raise _Mistake(f"replay: {name or 'name a file'}: {error.strerror}") from None
        except ExchangeError as error:
            raise _Mistake(f"replay: {name}: {error}") from None
        except UnicodeDecodeError:
            raise _Mistake(f"replay: {name}: is not a saved exchange") from None
        # A saved exchange begins with the Hello of its own connection.
        self._session.close()
        before = len(self._session.transcript)
        for transfer in saved:
            if transfer.direction == ">":
                self._session.connect()
                self._session.send_raw(transfer.data)
        responses = [t.data for t in self._session.transcript[before:] if t.direction == "<"]
        wanted = [t.data for t in saved if t.direction == "<"]
        same = sum(a == b for a, b in zip(responses, wanted, strict=False))
        print(f"replayed: {same} of {len(wanted)} responses are the same, {len(responses)} came")
