"""`millrace serve` as a process: its output, and its end."""

from __future__ import annotations

import json
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.hang_timeout import HANG_TIMEOUT_S

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace, Serve


def ask(address: tuple[str, int], line: str) -> str:
    """The first line that a text command is answered with."""
    with socket.create_connection(address, timeout=HANG_TIMEOUT_S) as connection:
        connection.sendall(f"{line}\n".encode())
        with connection.makefile(encoding="utf-8") as answer:
            return answer.readline().rstrip("\n")


def test_first_line_names_the_address_and_the_broker_answers_there(serve: Serve) -> None:
    with serve() as serving:
        assert serving.first_line.startswith("listening on 127.0.0.1:")
        assert ask(serving.address, "TOPICS") == "OK 0 topics"
        code, stderr = serving.stop()
    assert code == 0
    events = [json.loads(line) for line in stderr.splitlines()]
    assert (events[0]["event"], events[-1]["event"]) == ("listening", "stopped")
    assert events[0]["clients"] == "millrace, Kafka, netcat"


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_sigint_drains_on_either_loop(serve: Serve, loop: str) -> None:
    with serve("--loop", loop) as serving:
        assert serving.stop(signal.SIGINT)[0] == 0


def test_sigterm_answers_a_long_poll_before_the_broker_ends(
    serve: Serve, millrace: Millrace
) -> None:
    with serve() as serving:
        millrace.servers = serving.servers
        assert millrace("topic", "create", "quiet").exit_code == 0
        with millrace.running("nc", stdin=subprocess.PIPE) as session:
            assert session.stdin is not None
            assert session.stdout is not None
            session.stdin.write(b"fetch partitions=quiet max_wait_ms=60000 min_bytes=1\n")
            session.stdin.close()
            line = session.stdout.readline()
            while not line.startswith(b"Fetch request"):
                assert line, "nc ended before it sent the request"
                line = session.stdout.readline()
            # The fetch is in the broker's socket: it was read when a later connection is answered.
            assert ask(serving.address, "TOPICS").startswith("topic quiet")
            code, _ = serving.stop()
            answer = session.stdout.read()
            assert session.wait(timeout=HANG_TIMEOUT_S) == 0
    assert code == 0
    assert b"Fetch response" in answer


def test_a_second_signal_ends_the_process_without_draining(serve: Serve) -> None:
    with (
        serve("--drain-timeout-ms", "600000") as serving,
        socket.create_connection(serving.address) as reader,
    ):
        # Half of a request, which the drain waits for.
        reader.sendall(b"\0\0\0\x40MR")
        serving.process.send_signal(signal.SIGTERM)
        stderr = serving.process.stderr
        assert stderr is not None
        while b'"stopping"' not in stderr.readline():
            assert serving.process.poll() is None
        serving.process.send_signal(signal.SIGTERM)
        assert serving.process.wait(timeout=HANG_TIMEOUT_S) == -signal.SIGTERM


def test_records_are_there_after_a_restart(serve: Serve, millrace: Millrace) -> None:
    with serve() as serving:
        millrace.servers = serving.servers
        assert millrace("topic", "create", "kept").exit_code == 0
        assert millrace.process("produce", "kept", stdin=b"one\ntwo\n").returncode == 0
        assert serving.stop()[0] == 0
    with serve() as serving:
        millrace.servers = serving.servers
        assert millrace("consume", "kept").stdout == "one\ntwo\n"


def test_port_in_use_is_one_line_and_exit_4(millrace: Millrace, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = millrace.process(
            "serve", "--data", str(tmp_path), "--listen", address, "--log-level", "error"
        )
    assert ended.returncode == 4
    assert ended.stdout == b""
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith("millrace serve: cannot listen on 127.0.0.1 port ")
    assert "choose another port" in line


def test_metrics_are_answered_beside_the_port_of_clients(serve: Serve) -> None:
    with serve("--metrics-listen", "0", "--log-format", "json") as serving:
        assert serving.process.stderr is not None
        listening = json.loads(serving.process.stderr.readline())
        assert (listening["event"], listening["host"]) == ("listening for metrics", "127.0.0.1")
        url = f"http://127.0.0.1:{listening['port']}/health/ready"
        with urllib.request.urlopen(url, timeout=HANG_TIMEOUT_S) as answer:
            assert json.load(answer) == {"ready": True, "reason": None}
        assert serving.stop()[0] == 0


def test_a_port_for_metrics_that_is_in_use_is_one_line_and_exit_4(
    millrace: Millrace, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = millrace.process(
            *("serve", "--data", str(tmp_path), "--listen", "127.0.0.1:0"),
            *("--metrics-listen", port, "--log-level", "error"),
        )
    assert (ended.returncode, ended.stdout) == (4, b"")
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith(f"millrace serve: cannot listen on 127.0.0.1 port {port}: ")


@pytest.mark.parametrize("library", ["h11", "prometheus_client"])
def test_metrics_without_their_libraries_are_one_line_and_exit_2(
    tmp_path: Path, library: str
) -> None:
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from millrace_cli.main import main; sys.exit(main())"
    )
    data = tmp_path / "data"
    arguments = ("serve", "--data", str(data), "--listen", "127.0.0.1:0")

    def ended(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *arguments, *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=HANG_TIMEOUT_S)

    refused = ended("--metrics-listen", "0")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"millrace serve: flag: metrics_listen: needs {library}: pip install 'millrace[metrics]'\n"
    )
    assert not data.exists()


def test_locked_directory_is_one_line_and_exit_3(
    serve: Serve, millrace: Millrace, tmp_path: Path
) -> None:
    with serve() as serving:
        ended = millrace.process(
            "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"
        )
        assert ended.returncode == 3
        (line,) = ended.stderr.decode().splitlines()
        assert f"in use by process {serving.process.pid}" in line
        assert ask(serving.address, "TOPICS") == "OK 0 topics"


def test_data_that_cannot_be_made_is_one_line_and_exit_5(
    millrace: Millrace, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    for data in (tmp_path / "file", tmp_path / "file" / "data"):
        ended = millrace.process("serve", "--data", str(data))
        assert ended.returncode == 5
        (line,) = ended.stderr.decode().splitlines()
        assert line.startswith(f"millrace serve: the data directory {data} cannot be made: ")
        assert line.endswith("; name another with --data")


def test_disk_fault_while_running_ends_the_broker_with_exit_5(
    serve: Serve, millrace: Millrace
) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))

    with serve(before=small_files) as serving:
        millrace.servers = serving.servers
        assert millrace("topic", "create", "full").exit_code == 0
        with millrace.running("produce", "full", stdin=subprocess.PIPE) as writer:
            assert writer.stdin is not None
            writer.stdin.write(b"x" * (1 << 17) + b"\n")
            writer.stdin.close()
            _, stderr = serving.process.communicate(timeout=HANG_TIMEOUT_S)
    assert serving.process.returncode == 5
    assert "File too large" in stderr.decode().splitlines()[-1]


@pytest.mark.parametrize(
    ("toml", "flags", "reason"),
    [
        ('listn = "127.0.0.1:0"', [], "listn: there is no such key; did you mean listen?"),
        ("listen = ", [], "TOML"),
        ("", ["--listen", "nowhere"], "listen"),
        ("", ["--listen", "0.0.0.0:0"], "--insecure-listen"),
        ("", ["--loop", "trio"], "loop"),
    ],
)
def test_wrong_setting_is_one_line_that_says_where_and_exit_2(
    millrace: Millrace, tmp_path: Path, toml: str, flags: list[str], reason: str
) -> None:
    file = tmp_path / "millrace.toml"
    file.write_text(toml)
    millrace.environment = {"MILLRACE_SERVERS": "ignored:1"}
    ended = millrace("serve", "--config", str(file), "--data", str(tmp_path / "data"), *flags)
    assert ended.exit_code == 2
    (line,) = ended.stderr.splitlines()
    assert reason in line
    assert not (tmp_path / "data").exists()


def test_a_broker_that_finds_no_quorum_says_which_brokers_are_missing_and_is_exit_69(
    millrace: Millrace, tmp_path: Path, voters: list[str]
) -> None:
    millrace.environment["MILLRACE_QUORUM_WAIT_MS"] = "1"
    ended = millrace.process("serve", "--data", str(tmp_path), *voters)
    assert ended.returncode == 69
    assert ended.stdout == b""
    assert "broker(s) 2, 3 did not answer within 1 ms" in ended.stderr.decode().splitlines()[-1]


def test_a_broker_that_waits_for_a_quorum_says_so_and_ends_at_sigterm(
    millrace: Millrace, tmp_path: Path, voters: list[str]
) -> None:
    with millrace.running("serve", "--data", str(tmp_path), *voters) as process:
        assert process.stderr is not None
        for line in process.stderr:
            event = json.loads(line)
            if event["event"] == "waiting for the metadata quorum":
                break
        assert event["brokers"] == "1, 2, 3"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=HANG_TIMEOUT_S) == 0
        assert b"stopped before it had started" in process.stderr.read()


def test_config_file_that_is_not_there_is_exit_2(millrace: Millrace, tmp_path: Path) -> None:
    ended = millrace("serve", "--config", str(tmp_path / "absent.toml"))
    assert ended.exit_code == 2
    assert "No such file" in ended.stderr


def test_flags_win_over_the_environment_and_that_over_the_file(
    serve: Serve, millrace: Millrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "millrace.toml"
    file.write_text('partitions = 7\nlog_level = "nonsense"\n[topic]\n"retention.ms" = 1234567\n')
    monkeypatch.setenv("MILLRACE_LOG_LEVEL", "error")
    monkeypatch.setenv("MILLRACE_PARTITIONS", "5")
    with serve("--config", str(file), "--partitions", "3") as serving:
        millrace.servers = serving.servers
        assert millrace("topic", "create", "t").stdout == "t\t3\n"
        described = json.loads(millrace("topic", "describe", "t", "--json").stdout)
        assert described["configs"]["retention.ms"] == {"value": "1234567", "source": "broker"}
        code, stderr = serving.stop()
    assert (code, stderr) == (0, "")


def test_serve_raises_its_limit_of_open_files_to_the_hard_one(serve: Serve) -> None:
    def few_files() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))

    with serve(before=few_files) as serving:
        limits = Path(f"/proc/{serving.process.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    soft, hard = line.removeprefix("Max open files").split()[:2]
    assert soft == hard


def test_serve_loads_no_client_and_help_loads_neither_side() -> None:
    code = (
        "import sys, millrace_cli.main\n"
        "heavy = {'asyncio', 'millrace_server', 'millrace.producer', 'millrace_protocol.api'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "import millrace_server.serve\n"
        "names = ('millrace.producer', 'millrace.consumer', 'numpy', 'pyarrow', 'aiofiles')\n"
        "names += ('h11', 'prometheus_client')\n"
        "print([name for name in names if name in sys.modules])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n[]\n"
