"""The directory of a local cluster: what is made, kept, and refused, before any process starts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace_cli.exits import Exit
from millrace_cli.local_cluster.directory import ClusterDirectory, LocalClusterError
from millrace_cli.local_cluster.layout import LAYOUT_NAME, BrokerPorts, Layout, LayoutError


def refused(path: Path, **wanted: int) -> LocalClusterError:
    with pytest.raises(LocalClusterError) as caught:
        ClusterDirectory.open(path, **wanted)
    return caught.value


@pytest.fixture
def known(tmp_path: Path) -> Iterator[Path]:
    """The directory of a cluster of two brokers that was started once."""
    path = tmp_path / "cluster"
    ClusterDirectory.open(path, brokers=2, port=0).release()
    yield path


def test_a_new_cluster_has_two_ports_for_each_broker_from_the_first_on() -> None:
    layout = Layout.of_ports(range(9092, 9098))
    assert layout.brokers[1] == BrokerPorts(2, 9093, 9096)
    assert layout.servers == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert layout.quorum == "1@127.0.0.1:9095,2@127.0.0.1:9096,3@127.0.0.1:9097"
    assert Layout.decode(layout.encode()) == layout


def test_brokers_and_ports_stay_from_start_to_start(known: Path) -> None:
    first = ClusterDirectory.open(known)
    first.release()
    again = ClusterDirectory.open(known, brokers=2, port=first.layout.brokers[0].port)
    again.release()
    assert again.layout == first.layout
    assert (
        len({b.port for b in again.layout.brokers} | {b.broker_port for b in again.layout.brokers})
        == 4
    )


def test_another_number_of_brokers_or_other_ports_are_refused(known: Path) -> None:
    error = refused(known, brokers=3)
    assert error.code is Exit.USAGE
    assert f"the cluster in {known} has 2 brokers and not 3" in str(error)
    error = refused(known, port=1)
    assert error.code is Exit.USAGE
    assert "start it without --port" in str(error)


def test_a_directory_in_use_is_refused_with_the_process_that_uses_it(known: Path) -> None:
    held = ClusterDirectory.open(known)
    error = refused(known)
    held.release()
    assert error.code is Exit.LOCKED
    assert "is run by process" in str(error)


def test_a_port_in_use_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refused(tmp_path / "new", brokers=1, port=port)
        assert error.code is Exit.LISTEN
        assert f"broker 1 cannot listen on 127.0.0.1 port {port}: " in str(error)
        assert "choose other ports with --port" in str(error)
    assert not (tmp_path / "new" / LAYOUT_NAME).exists()
    assert refused(tmp_path / "new", brokers=9, port=65_530).code is Exit.USAGE


def test_a_port_in_use_of_a_known_cluster_cannot_be_another_one(known: Path) -> None:
    directory = ClusterDirectory.open(known)
    directory.release()
    with socket.create_server(("127.0.0.1", directory.layout.brokers[1].broker_port)):
        error = refused(known)
    assert error.code is Exit.LISTEN
    assert "broker 2 cannot listen" in str(error)
    assert "end the program that listens there" in str(error)


def test_a_directory_with_other_files_is_not_taken_for_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    error = refused(tmp_path)
    assert error.code is Exit.USAGE
    assert "it is not the directory of a cluster" in str(error)
    assert [entry.name for entry in tmp_path.iterdir()] == ["meta.properties"]
    (tmp_path / "file").write_text("")
    assert refused(tmp_path / "file" / "cluster").code is Exit.DISK


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version": 2, "brokers": []}',
        '{"version": 1, "brokers": []}',
        '{"version": 1, "brokers": [{"node_id": 2, "port": 1, "broker_port": 2}]}',
        '{"version": 1, "brokers": [{"node_id": 1, "port": 0, "broker_port": 2}]}',
        '{"version": 1, "brokers": [{"node_id": 1, "port": "1", "broker_port": 2}]}',
        '{"version": 1, "brokers": [{"node_id": 1, "port": 1}]}',
        '{"version": 1, "brokers": 5}',
    ],
)
def test_a_layout_that_cannot_be_read_is_refused(known: Path, text: str) -> None:
    with pytest.raises(LayoutError):
        Layout.decode(text)
    (known / LAYOUT_NAME).write_text(text)
    error = refused(known)
    assert error.code is Exit.DISK
    assert f"{known / LAYOUT_NAME} cannot be read: " in str(error)
