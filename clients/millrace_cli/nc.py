"""`millrace nc`: talk to a broker in its own protocol, and see every byte.

Owns the commands one types and how the session ends. Requests are `request_line`'s, the wire
`wire_session`'s, saved files `exchange`'s.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.exits import Exit, ended, output_is_gone
from millrace_cli.servers import DEFAULT_SERVERS

if TYPE_CHECKING:
    from millrace_cli.wire_session import WireSession

HELP = """\
  API [FIELD=VALUE ...]  send a request: `metadata`, `fetch partitions=clicks max_wait_ms=500`;
                         values are JSON or words, what is left out has a default; API@N sends
                         version N
  raw HEX                send bytes as they are
  save FILE              write what passed so far to a file
  replay FILE            send what such a file sent, and say whether the answers are the same
  help [API]             this, or the fields of an api
  quit                   or ^D
"""


class _Stop(Exception):
    """`quit` was typed."""


class _Mistake(Exception):
    """A line that is not understood, or a file that cannot be used."""


def nc(
    server: Annotated[
        str, typer.Argument(metavar="[HOST:PORT]", envvar="MILLRACE_SERVERS", help="The broker.")
    ] = DEFAULT_SERVERS,
    hello: Annotated[
        bool, typer.Option("--hello/--no-hello", help="Begin each connection with a Hello.")
    ] = True,
    timeout_ms: Annotated[
        int, typer.Option(min=1, help="How long to wait for an answer.")
    ] = 10_000,
) -> None:
    """Type requests, see the bytes go out and come back, annotated.

    Reads commands from the terminal or from a pipe: say `help`. In a pipe, the first line that is
    not understood ends it.

    \b
    millrace nc localhost:9092 <<'END'
    metadata
    fetch partitions={"topic": "clicks", "fetch_offset": 7}
    END
    """
    raise typer.Exit(_nc(server, hello=hello, timeout_ms=timeout_ms))


def _nc(server: str, *, hello: bool, timeout_ms: int) -> Exit:
    from millrace.config import parse_servers
    from millrace.errors import ConfigError
    from millrace_cli.wire_session import NoAnswer, WireSession

    try:
        address = parse_servers(server)[0]
    except ConfigError as error:
        return ended(Exit.USAGE, error)
    session = WireSession(address, timeout_s=timeout_ms / 1000, client_id="millrace-nc")
    shell = _Shell(session, hello=hello)
    interactive = sys.stdin.isatty()
    try:
        shell.connect()
        for line in _typed() if interactive else sys.stdin:
            try:
                shell.run(line)
            except (_Mistake, NoAnswer) as error:
                code = Exit.INPUT if isinstance(error, _Mistake) else Exit.UNAVAILABLE
                ended(code, error)
                if not interactive:
                    return code
    except NoAnswer as error:
        return ended(Exit.UNAVAILABLE, error)
    except BrokenPipeError:
        return output_is_gone()
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
    """The commands, on a session."""

    def __init__(self, session: WireSession, *, hello: bool) -> None:
        self._session = session
        self._hello = hello

    def connect(self) -> None:
        """Connects where needed, and says Hello on a new connection."""
        if self._session.connect() and self._hello:
            self._request("hello")

    def run(self, line: str) -> None:
        """Runs a line. Raises `_Mistake`, `NoAnswer`, `_Stop` and `OSError`."""
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
                # Not connect(): that would say it twice.
                self._session.connect()
                self._request(line)
            case _:
                if not command.startswith("#"):
                    self._parse(line)
                    self.connect()
                    self._request(line)

    def _parse(self, line: str) -> None:
        """Finds mistakes before anything is sent."""
        from millrace_cli.request_line import RequestError, read_request

        try:
            read_request(line, now_ms=0)
        except RequestError as error:
            raise _Mistake(str(error)) from None

    def _request(self, line: str) -> None:
        from millrace_cli.request_line import read_request

        try:
            api, version, request = read_request(line, now_ms=time.time_ns() // 1_000_000)
            wait_ms = getattr(request, "max_wait_ms", 0)
            self._session.ask(api.key, version, request, wait_ms=wait_ms)
        except ValueError as error:
            # A `RequestError`, or what the codec cannot carry: a number beyond its field.
            raise _Mistake(str(error)) from None

    def _help(self, name: str) -> None:
        from millrace_cli.request_line import RequestError, api_help, apis_help, find_api

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
            raise _Mistake("raw: give hex, as in `raw 0000 001b 4d52 0012 ...`")
        # What the connection begins with shall be these bytes, so no Hello.
        self._session.connect()
        self._session.send_raw(data)

    def _save(self, name: str) -> None:
        from millrace_cli.exchange import write_exchange

        if not name:
            raise _Mistake("save: name a file")
        try:
            with Path(name).open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in write_exchange(self._session.passed))
        except OSError as error:
            raise _Mistake(f"save: {name}: {error.strerror}") from None
        print(f"saved {len(self._session.passed)} frames to {name}")

    def _replay(self, name: str) -> None:
        from millrace_cli.exchange import ExchangeError, read_exchange

        try:
            saved = read_exchange(Path(name).read_text("utf-8"))
        except OSError as error:
            raise _Mistake(f"replay: {name or 'name a file'}: {error.strerror}") from None
        except ExchangeError as error:
            raise _Mistake(f"replay: {name}: {error}") from None
        except UnicodeDecodeError:
            raise _Mistake(f"replay: {name}: is no saved exchange") from None
        # A saved exchange begins with the Hello of its own connection.
        self._session.close()
        before = len(self._session.passed)
        for passed in saved:
            if passed.direction == ">":
                self._session.connect()
                self._session.send_raw(passed.data)
        answers = [p.data for p in self._session.passed[before:] if p.direction == "<"]
        wanted = [p.data for p in saved if p.direction == "<"]
        same = sum(a == b for a, b in zip(answers, wanted, strict=False))
        print(f"replayed: {same} of {len(wanted)} answers are the same, {len(answers)} came")
