"""A data directory that has lost part of what says which replica it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace_server.api_error import ApiError
from tests.broker.failing_disk import Faults, node_on
from tests.broker.wire import connect


async def test_a_directory_whose_identity_is_gone_is_refused(tmp_path: Path) -> None:
    """Its votes may be gone as well, and under a new identity its quorum has no leader."""
    async with node_on(tmp_path, Faults()) as node, connect(node.address[1]) as wire:
        await wire.create("clicks")
    identity = tmp_path / "meta.properties"
    kept = identity.read_bytes()
    identity.unlink()
    with pytest.raises(ApiError, match=r"no file meta\.properties; restore the file from a backup"):
        async with node_on(tmp_path, Faults(), stop=False):
            pass
    assert not identity.exists()
    identity.write_bytes(kept)
    async with node_on(tmp_path, Faults()) as node:
        assert "clicks" in node.broker.image.topics
