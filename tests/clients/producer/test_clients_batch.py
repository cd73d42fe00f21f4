"""A batch's bytes are those of its records, however they came into it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millrace._producer.batch import Batch
from millrace._producer.columns import Columns, common_record_bytes
from millrace_protocol.records import Codec, decode_records

VALUE = st.sampled_from([None, b"", b"a", b"b", b"cc"])
RUN = st.lists(VALUE, min_size=1, max_size=3) | VALUE
OWNER: Any = None


@given(st.lists(RUN, min_size=1, max_size=6))
def test_values_come_back_from_any_mix_of_single_and_many(
    runs: list[list[bytes | None] | bytes | None],
) -> None:
    batch = Batch(OWNER, "t", 0, (1,), 1 << 20)
    expected: list[bytes | None] = []
    for run in runs:
        if isinstance(run, list):
            columns = Columns(run, None, None, 7, common_record_bytes(run, 0))
            batch.extend(columns, 0, len(run), 0)
            expected += run
        else:
            batch.append(None, run, (), 7, 0)
            expected.append(run)
    batch.encode(Codec.NONE, -1, -1, -1)
    assert batch.payload is not None
    assert [value for _, _, _, value, _ in decode_records(bytes(batch.payload))] == expected
