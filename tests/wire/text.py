"""Checks of W-8: the text dialect."""

from __future__ import annotations

import re

from tests.wire.batches import batch
from tests.wire.check import Target, check, equal, produce, true
from tests.wire.groups import first_member


@check("W-8.1")
def the_last_line_of_an_answer_begins_with_ok_or_err(target: Target) -> None:
    """And no line before it does."""
    with target.text() as text:
        for line in ("HELP", "TOPICS", "GROUPS", "NONSENSE", "FETCH", "OFFSETS nope"):
            answer = text.ask(line)
            true(answer[-1].split(" ")[0] in ("OK", "ERR"), f"{line}: {answer[-1]!r}")


@check("W-8.1", "W-7.1")
def an_error_has_a_name_and_a_sentence(target: Target) -> None:
    """`ERR`, the error's name, a sentence."""
    with target.text() as text:
        for line, name in (
            ("NONSENSE", "INVALID_REQUEST"),
            ("FETCH nope 0 0", "UNKNOWN_TOPIC_OR_PARTITION"),
            ("CREATE a/b", "INVALID_TOPIC_EXCEPTION"),
        ):
            (answer,) = text.ask(line)
            true(re.fullmatch(rf"ERR {name} [A-Z].+", answer), answer)


@check("W-8.1")
def commands_are_read_in_any_case_and_ending(target: Target) -> None:
    """Upper or lower case, LF or CRLF, spaces before; empty lines are not answered."""
    with target.text() as text:
        for line in ("help", "HELP\r", "   Help", "\n\nHELP"):
            true(text.ask(line)[-1].startswith("OK"), f"{line!r}")


@check("W-8.1")
def a_line_of_65536_bytes_is_read_and_a_longer_one_closes(target: Target) -> None:
    """An answer in text comes first."""
    with target.text() as text:
        true(text.ask(b"X" * 65_536)[0].startswith("ERR"), "65,536 bytes")
        text.type(b"X" * 65_537)
        true(text.answer()[-1].startswith("ERR"), "65,537 bytes")
        equal(text.line(), "", "the line behind it")


@check("W-8.1", "W-8.3")
def what_is_typed_next_sees_what_was_done(target: Target) -> None:
    """Commands of a connection are carried out one after the other."""
    topic = target.name()
    with target.text() as text:
        for line in (f"CREATE {topic} 2", f"PRODUCE {topic} 1 a  b ", f"FETCH {topic} 1 0"):
            text.type(line)
        true(text.answer()[0].startswith("OK"), "CREATE")
        equal(text.answer(), [f"OK {topic}-1 offset 0"], "PRODUCE")
        record, last = text.answer()
        true(record.startswith("offset 0 time ") and record.endswith(" value a  b "), record)
        equal(last, "OK 1 record, next offset 1, high watermark 1", "FETCH")


@check("W-8.2")
def a_record_cannot_forge_a_line(target: Target) -> None:
    """Control characters, backslashes and bytes that are not UTF-8 are escaped."""
    with target.connect() as wire, target.text() as text:
        topic = target.topic(wire)
        produce(wire, topic, batch(b"a\nOK b\\\xff\x1b[2J", key=b"k\r", headers=[("h\n", None)]))
        produce(wire, topic, batch(None))
        first, second, last = text.ask(f"FETCH {topic} 0 0")
        expected = r"key k\r header h\n=(null) value a\nOK b\\\xff\x1b[2J"
        equal(first.partition("Z ")[2], expected, "the first record")
        true(second.endswith("key (null) value (null)"), second)
        true(last.startswith("OK 2 records"), last)


@check("W-8.2")
def a_long_value_and_many_headers_are_cut(target: Target) -> None:
    """The cut is shown with the size."""
    with target.connect() as wire, target.text() as text:
        topic = target.topic(wire)
        headers = [(f"h{n}", b"") for n in range(20)]
        produce(wire, topic, batch(b"x" * 10_000, headers=headers))
        record = text.ask(f"FETCH {topic} 0 0")[0]
        true(record.endswith("... (10000 bytes)"), record[-40:])
        equal((record.count(" header h"), "... (20 headers)" in record), (16, True), "headers")


@check("W-8.3", "W-6.7")
def fetch_counts_from_1_to_1000(target: Target) -> None:
    """10 records without COUNT; 0 and 1,001 are refused."""
    with target.connect() as wire, target.text() as text:
        topic = target.topic(wire)
        produce(wire, topic, batch(*[b"v"] * 20))
        equal(len(text.ask(f"FETCH {topic} 0 0")), 11, "lines without COUNT")
        equal(len(text.ask(f"FETCH {topic} 0 5 1000")), 16, "lines with COUNT")
        for count in ("0", "1001", "x"):
            true(text.ask(f"FETCH {topic} 0 0 {count}")[0].startswith("ERR"), count)


@check("W-8.3")
def every_command_answers(target: Target) -> None:
    """HELP names them; PRODUCE without a value appends an empty one."""
    with target.connect() as wire, target.text() as text:
        topic = target.topic(wire)
        commands = "HELP TOPICS DESCRIBE CREATE PRODUCE PRODUCEKEY FETCH OFFSETS GROUPS LAG STATS"
        named = " ".join(text.ask("HELP"))
        equal([c for c in [*commands.split(), "TAIL", "QUIT"] if c not in named], [], "not in HELP")
        equal(text.ask(f"PRODUCE {topic} 0"), [f"OK {topic}-0 offset 0"], "no value")
        equal(text.ask(f"PRODUCE {topic} 0 "), [f"OK {topic}-0 offset 1"], "an empty value")
        equal(text.ask(f"PRODUCEKEY {topic} 0 k v w"), [f"OK {topic}-0 offset 2"], "PRODUCEKEY")
        true(text.ask(f"FETCH {topic} 0 0")[0].endswith("value "), "the empty value")
        true(text.ask(f"FETCH {topic} 0 2")[0].endswith("key k value v w"), "the record")
        equal(text.ask(f"OFFSETS {topic}"), ["partition 0 start 0 high watermark 3", "OK"], "")
        true(text.ask(f"DESCRIBE {topic}")[-1].startswith("OK"), "DESCRIBE")
        true(any(topic in line for line in text.ask("TOPICS")), "TOPICS")


@check("W-8.3")
def tail_streams_and_quit_closes(target: Target) -> None:
    """New records come as lines; after `OK bye` the connection is closed."""
    with target.connect() as wire, target.text() as text:
        topic = target.topic(wire)
        text.ask("HELP")
        text.type(f"TAIL {topic} 0")
        # One of them is produced after the broker has read the line.
        for _ in range(100):
            produce(wire, topic, batch(b"new"), acks=1)
        true(text.line().endswith("value new"), "the record")
    with target.text() as text:
        equal((text.ask("QUIT"), text.line()), (["OK bye"], ""), "QUIT")


@check("W-8.4")
def lag_shows_what_a_group_has_committed(target: Target) -> None:
    """One line for each partition; a group is one line of GROUPS."""
    with target.connect() as wire, target.text() as text:
        member, topic = first_member(target, wire), target.topic(wire)
        produce(wire, topic, batch(b"a", b"b"))
        who = (member.group, member.generation, member.member_id, None)
        wire.call("OffsetCommit", *who, [(topic, 0, 1, -1, None)])
        lines = text.ask(f"LAG {member.group}")
        expected = f"topic {topic} partition 0 committed 1 high watermark 2 lag 1 member "
        true(any(line.startswith(expected) for line in lines), f"{lines}")
        expected = f"group {member.group} state Stable members 1 protocol range"
        true(expected in text.ask("GROUPS"), "the group's line")


@check("W-8.5")
def a_line_of_stats_is_a_metric_its_labels_and_its_value(target: Target) -> None:
    """A histogram's line has a count, a sum and two quantiles; a prefix selects metrics."""
    labels = r'(\{[a-z_]+="[^" ]*"(,[a-z_]+="[^" ]*")*\})?'
    number = r"(-|[0-9.e+-]+)"
    histogram = rf"count \d+ sum {number} p50 {number} p99 {number}"
    with target.connect() as wire, target.text() as text:
        wire.call("Metadata", [])
        *lines, last = text.ask("STATS")
        true(re.fullmatch(r"OK \d+ values|OK \d+ of \d+ values", last), last)
        true(lines, "no metrics")
        for line in lines:
            true(re.fullmatch(rf"[a-z_]+{labels} ({number}|{histogram})", line), line)
        name = re.match(r"[a-z_]+", lines[-1])
        assert name is not None
        selected = text.ask(f"STATS {name[0]}")[:-1]
        true(all(line.startswith(name[0]) for line in selected) and selected, f"{name[0]}")
        equal(text.ask("STATS nothing"), ["OK 0 values"], "a prefix that no metric has")
