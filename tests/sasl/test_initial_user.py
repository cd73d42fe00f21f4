"""The user that a new cluster starts with, where every listener asks for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millrace import Admin
from millrace.errors import BrokerError
from millrace_server.config import BrokerConfig
from millrace_server.testing import Broker, Cluster

LISTEN = "sasl://127.0.0.1:0"


def broker(data: Path, **settings: Any) -> Broker:
    return Broker(
        data=data,
        listen=LISTEN,
        super_users="User:root",
        failed_authentication_delay_ms=0,
        **settings,
    )


def first(password: str) -> dict[str, str]:
    return {"initial_user": "root", "initial_password": password}


def admin(running: Broker, user: str, password: str, mechanism: Any = "SCRAM-SHA-256") -> Admin:
    return Admin(running.servers, username=user, password=password, sasl_mechanism=mechanism)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_the_first_user_adds_others_through_the_only_listener(
    tmp_path: Path, mechanism: str
) -> None:
    async with (
        broker(tmp_path, **first("pencil")) as running,
        admin(running, "root", "pencil", mechanism) as root,
    ):
        await root.set_password("ada", "chalk")
        assert [*await root.list_users()] == ["ada", "root"]


async def test_a_later_start_changes_no_password(tmp_path: Path) -> None:
    async with broker(tmp_path, **first("pencil")):
        pass
    async with broker(tmp_path, **first("other")) as running:
        async with admin(running, "root", "pencil") as root:
            assert [*await root.list_users()] == ["root"]
        with pytest.raises(BrokerError, match="the user or the password is wrong"):
            async with admin(running, "root", "other") as root:
                await root.list_users()


async def test_a_user_that_was_removed_does_not_come_back(tmp_path: Path) -> None:
    async with (
        broker(tmp_path, **first("pencil")) as running,
        admin(running, "root", "pencil") as root,
    ):
        await root.delete_user("root")
        assert await root.list_users() == {}
    async with broker(tmp_path, **first("pencil")) as running:
        with pytest.raises(BrokerError, match="the user or the password is wrong"):
            async with admin(running, "root", "pencil") as root:
                await root.list_users()


async def test_a_cluster_that_never_had_a_user_gets_one_with_its_next_start(tmp_path: Path) -> None:
    async with broker(tmp_path):
        pass
    async with (
        broker(tmp_path, **first("pencil")) as running,
        admin(running, "root", "pencil") as root,
    ):
        assert [*await root.list_users()] == ["root"]


async def test_brokers_of_a_cluster_start_with_one_user() -> None:
    async with (
        Cluster(3, authorization="on", super_users="User:ANONYMOUS", **first("x")) as three,
        Admin(three.servers) as root,
    ):
        assert [*await root.list_users()] == ["root"]


async def test_the_password_is_shown_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with (
        broker(tmp_path, **first("pencil")) as running,
        admin(running, "root", "pencil") as root,
    ):
        found = await root.describe_broker_configs(0)
    assert found["initial_user"].value == "root"
    assert found["initial_password"].value == "(hidden)"
    assert "pencil" not in f"{found} {running.config} {caplog.text}"
    assert "initial user added" in caplog.text


def test_a_config_hides_the_password_from_its_text() -> None:
    assert "pencil" not in repr(BrokerConfig(**first("pencil")))  # type: ignore[arg-type]
