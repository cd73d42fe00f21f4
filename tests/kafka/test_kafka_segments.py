"""A segment that Apache Kafka 4.3.1 has written is read as it is.

`tests.kafka.java_tools.kafka_segment` has made the file; `python -m tests.kafka --java` tries both
directions with a running Kafka.
"""

from __future__ import annotations

from pathlib import Path

from millrace_protocol.dissect import dissect
from tests.kafka.moved_segments import MOVED, records_in, take_over

RECORDED = Path(__file__).parent / "data" / "kafka-4.3.1.log"


def test_a_broker_serves_a_segment_of_kafka(tmp_path: Path) -> None:
    take_over(RECORDED, tmp_path)
    assert records_in(tmp_path) == MOVED * 3


def test_the_dissector_explains_a_segment_of_kafka() -> None:
    spans = list(dissect(RECORDED.read_bytes(), file_name=RECORDED.name))
    assert not [fault for span in spans for fault in span.faults()]
    assert len(spans) == 3
