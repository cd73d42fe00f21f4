"""Certificates of an authority that only these tests trust."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from millrace_cli.dev_certificates import make_certificates


class Certificates(NamedTuple):
    """PEM files as text. `other_ca` has signed none of them; `other_host` is for another name."""

    ca: str
    broker: str
    client: str
    other_ca: str
    other_host: str
    other_client: str


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    here, there, elsewhere = (tmp_path_factory.mktemp(f"certificates-{n}") for n in range(3))
    make_certificates(here, hosts=["localhost", "127.0.0.1"], clients=["loader"], days=1)
    make_certificates(there, hosts=["localhost", "127.0.0.1"], clients=["loader"], days=1)
    for name in ("ca.pem", "ca-key.pem"):
        (elsewhere / name).write_bytes((here / name).read_bytes())
    make_certificates(elsewhere, hosts=["elsewhere.example"], clients=[], days=1)

    def text(directory: Path, name: str) -> str:
        return str(directory / name)

    return Certificates(
        ca=text(here, "ca.pem"),
        broker=text(here, "broker.pem"),
        client=text(here, "client-loader.pem"),
        other_ca=text(there, "ca.pem"),
        other_host=text(elsewhere, "broker.pem"),
        other_client=text(there, "client-loader.pem"),
    )
