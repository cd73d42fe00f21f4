"""The captured examples replayed against a broker, and the tables that are the broker's."""

from __future__ import annotations

from millrace_protocol.spec.captures import EXCHANGES
from tests.specification.__main__ import CAPTURES, main
from tests.specification.captures import VARYING, masked, module_text
from tests.specification.session import Exchange, record, replay

RECORD_AGAIN = """if this change is meant, record the examples again:
python -m tests.specification record
python -m millrace_protocol.spec wire_spec.md
MILLRACE_REWRITE_GOLDEN=1 pytest tests/protocol/test_golden.py"""
RECORDED = [Exchange(n, bytes.fromhex(q), bytes.fromhex(r)) for n, q, r in EXCHANGES]


async def test_a_broker_answers_the_captured_requests_as_it_did_when_they_were_recorded() -> None:
    """W-10: but for what differs from broker to broker."""
    replayed = await replay(RECORDED)
    assert len(replayed) == len(RECORDED) > 25
    for before, now in zip(RECORDED, replayed, strict=True):
        expected = masked(before.response, is_request=False)
        found = masked(now.response, is_request=False)
        assert found == expected, f"{before.name}: {RECORD_AGAIN}"


async def test_recording_again_makes_the_same_session() -> None:
    for before, now in zip(RECORDED, await record(), strict=True):
        assert before.name == now.name
        if before.name != "error-response":
            assert masked(before.request, is_request=True) == masked(now.request, is_request=True)


def test_the_module_of_captures_is_up_to_date() -> None:
    assert CAPTURES.read_text(encoding="utf-8") == module_text(RECORDED)


def test_only_varying_bytes_are_masked() -> None:
    assert VARYING.isdisjoint({"error_code", "error_message", "offset", "records", "message"})


def test_the_brokers_tables_in_the_specification_are_up_to_date() -> None:
    """W-4.10, W-6.7"""
    assert main(["update", "--check"]) == 0
