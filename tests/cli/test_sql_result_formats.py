"""A result on a terminal cannot control it; in a pipe it is what the query returned."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pytest

from millrace_cli.sql.result_formats import ResultFormat, write
from millrace_cli.sql.rows import Rows

TEXT = "a\x1b[2J\u202eb"


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_only_a_terminal_gets_escapes_for_control_characters(format_: ResultFormat) -> None:
    def written(*, for_terminal: bool) -> str:
        batch = pa.record_batch({"x": [TEXT]})
        out = io.BytesIO()
        write(Rows(batch.schema, iter([batch])), format_, out, for_terminal=for_terminal)
        return out.getvalue().decode()

    shown = written(for_terminal=True)
    assert shown.replace("\n", "").isprintable()
    assert shown.endswith("\n")
    if format_ == "json":
        assert json.loads(shown) == json.loads(written(for_terminal=False)) == {"x": TEXT}
    else:
        assert shown == "x\na\\x1b[2J\\u202eb\n"
        assert written(for_terminal=False) == f"x\n{TEXT}\n"
