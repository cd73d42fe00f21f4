"""The text of `listen` and `advertise`."""

from __future__ import annotations

from typing import Any

import pytest

from millrace_server.config import BrokerConfig
from millrace_server.listeners import ListenerConfig, parse_listeners
from tests.broker.test_config import loaded, mistake

CERTIFICATE: dict[str, Any] = {"tls_certificate": "broker.pem"}


def test_a_lone_address_is_the_listener_named_plain() -> None:
    assert BrokerConfig().listeners == (ListenerConfig("plain", ("127.0.0.1", 9092)),)


def test_listeners_have_names_of_their_own_or_those_of_their_security() -> None:
    config = loaded(
        listen="127.0.0.1:1, tls://127.0.0.1:2,inner=tls://[::1]:3",
        advertise="log.example:4, inner=inner.example:5",
        **CERTIFICATE,
    )
    assert config.listeners == (
        ListenerConfig("plain", ("127.0.0.1", 1), False, ("log.example", 4)),
        ListenerConfig("tls", ("127.0.0.1", 2), True, None),
        ListenerConfig("inner", ("::1", 3), True, ("inner.example", 5)),
    )


@pytest.mark.parametrize(
    ("listen", "why"),
    [
        ("", "is empty"),
        (" , ", "is empty"),
        ("a:1,b:2", "two listeners named 'plain'; name each, as in internal="),
        ("a=h:1,a=tls://h:2", "two listeners named 'a'"),
        ("a=h:1,b=h:1", "has h:1 twice"),
        ("A=h:1", "'A' is no name of a listener"),
        ("=h:1", "'' is no name of a listener"),
        ("ssl://h:1", "a scheme that is not known; there are tls://, sasl://"),
        ("tls://h", "is not HOST:PORT"),
        ("h:²", "is not HOST:PORT"),
        (",".join(f"l{n}=h:{n}" for n in range(1, 18)), "has 17 listeners; there are at most 16"),
    ],
)
def test_listeners_that_cannot_be_are_refused(listen: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_listeners(listen)
    error = mistake(listen=listen)
    assert error.key == "listen"
    assert why in error.reason


def test_two_ports_that_the_system_chooses_are_two() -> None:
    assert len(parse_listeners("a=h:0,b=h:0")) == 2


@pytest.mark.parametrize(
    ("advertise", "why"),
    [
        ("public=h:1", "there is no listener 'public'; listen has plain, tls"),
        ("h:1,plain=h:2", "has two addresses of the listener 'plain'"),
        ("tls=h", "is not HOST:PORT"),
        ("tls=0.0.0.0:1", "to the tls=HOST:PORT at which they reach this broker"),
    ],
)
def test_addresses_that_cannot_be_advertised_are_refused(advertise: str, why: str) -> None:
    error = mistake(listen="127.0.0.1:1,tls://127.0.0.1:2", advertise=advertise, **CERTIFICATE)
    assert error.key == "advertise"
    assert why in error.reason


def test_a_listener_with_tls_needs_a_certificate() -> None:
    error = mistake(listen="tls://127.0.0.1:1")
    assert error.key == "tls_certificate"
    assert "--tls-certificate" in error.reason


@pytest.mark.parametrize("name", ["tls_certificate", "tls_key", "tls_client_ca"])
def test_files_without_a_listener_with_tls_are_refused(name: str) -> None:
    given: dict[str, Any] = {name: "file.pem"}
    error = mistake(**given)
    assert error.key == name
    assert "put tls:// before an address of listen" in error.reason


def test_a_listener_that_checks_its_clients_may_be_reached_from_other_machines() -> None:
    exposed: dict[str, Any] = {"listen": "tls://192.168.1.1:9093", **CERTIFICATE}
    assert mistake(**exposed).key == "listen"
    assert loaded(**exposed, tls_client_ca="ca.pem").listeners[0].is_tls
