"""Imports that are killed between any two steps write every record once, for all histories."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace._arrow.corrupt_counts import NOTHING_CORRUPT, CorruptCounts, FieldExample
from millrace.errors import ConfigError
from millrace.records import TopicPartition
from millrace_spark.errors import DataLost
from millrace_spark.pipeline.corrupt_records import CorruptLimit
from millrace_spark.pipeline.errors import ImportRefused, LedgerError, TooManyCorrupt
from millrace_spark.pipeline.import_plan import Committed, Extent, ImportPolicy, commit_metadata
from millrace_spark.pipeline.importer import Importer
from millrace_spark.pipeline.ledger import FileLayout, ImportBatch, Ledger, Span, decode, encode
from millrace_spark.pipeline.range_task import RangeResult, file_name
from millrace_spark.pipeline.value_schema import parse_schema
from millrace_spark.reading.ranges import OffsetRange

TOPIC = "clicks"
GROUP = "import"
PIECE = 3
FRESH = Ledger("d1", GROUP, FileLayout())


def at(partition: int) -> TopicPartition:
    return TopicPartition(TOPIC, partition)


class Killed(Exception):
    """The process is no more."""


@dataclass
class World:
    """A broker, a group and a disk in memory; the process dies at step `steps_left`."""

    extents_now: dict[TopicPartition, Extent] = field(default_factory=dict)
    group: dict[TopicPartition, Committed] = field(default_factory=dict)
    stored: bytes | None = None
    files: dict[str, OffsetRange] = field(default_factory=dict)
    marked: dict[tuple[int, int], str] = field(default_factory=dict)
    steps_left: int | None = None
    corrupt: CorruptCounts = NOTHING_CORRUPT
    """Of each range."""
    layout: FileLayout = FRESH.layout

    def step(self) -> None:
        """A place where the process may die: before and behind every effect."""
        if self.steps_left is not None:
            if self.steps_left == 0:
                raise Killed
            self.steps_left -= 1

    # Directory

    def load(self) -> Ledger | None:
        return None if self.stored is None else decode(self.stored)

    def store(self, ledger: Ledger) -> None:
        self.step()
        self.stored = encode(ledger)
        self.step()

    def markers(self, landing: int) -> dict[int, str]:
        return {index: text for (number, index), text in self.marked.items() if number == landing}

    def delete_temporary(self) -> None:
        self.step()
        self.marked.clear()
        self.step()

    def delete_staging(self) -> None:
        self.step()

    def delete_batch(self, names: Container[str]) -> None:
        self.delete_temporary()
        for name in [each for each in self.files if each in names]:
            self.step()
            del self.files[name]
        self.step()

    # Log

    def extents(self, topics: Iterable[str]) -> dict[TopicPartition, Extent]:
        return {where: each for where, each in self.extents_now.items() if where.topic in topics}

    def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        return {where: self.group[where] for where in partitions if where in self.group}

    def split(self, spans: Mapping[TopicPartition, Span]) -> tuple[OffsetRange, ...]:
        return tuple(
            OffsetRange(where.topic, span.topic_id, where.partition, first, last)
            for where, span in spans.items()
            for first in range(span.start_offset, span.end_offset, PIECE)
            for last in [min(first + PIECE, span.end_offset)]
        )

    def commit(self, group: str, spans: Mapping[TopicPartition, Span], note: str) -> None:
        self.step()
        for where, span in spans.items():
            self.group[where] = Committed(span.end_offset, note)
        self.step()

    # Tasks

    def __call__(self, ledger: Ledger, ranges: Mapping[int, OffsetRange]) -> dict[int, RangeResult]:
        assert ledger.batch is not None
        for index, wanted in ranges.items():
            self.step()
            name = file_name(wanted, "parquet")
            assert self.files.setdefault(name, wanted) == wanted, "a name is one range"
            self.step()
            self.marked[ledger.batch.number, index] = self.result(wanted).encode()
        return {index: self.result(wanted) for index, wanted in ranges.items()}

    def result(self, wanted: OffsetRange) -> RangeResult:
        return RangeResult(len(wanted), 1, 1, self.corrupt)

    # What the tests do

    def grow(self, partition: int, count: int) -> None:
        """Records are produced."""
        before = self.extents_now.get(at(partition), Extent("t1", 0, 0))
        self.extents_now[at(partition)] = before._replace(latest=before.latest + count)

    def run(
        self, wishes: ImportPolicy, *, steps: int | None = None, limit: CorruptLimit | None = None
    ) -> int:
        """One run of the command, killed after so many steps; returns the records landed."""
        self.steps_left = steps
        fresh = replace(FRESH, layout=self.layout)
        importer = Importer.open(self, self, self, fresh=fresh, group=None)
        importer.clean_up()
        landed = 0
        if importer.ledger.batch is not None:
            landed += importer.write_batch(limit).records
        if importer.begin_batch([TOPIC], wishes) is not None:
            landed += importer.write_batch(limit).records
        return landed

    def planned(self, directory_id: str) -> Importer:
        """An importer with a landing under way, of which nothing is there yet."""
        fresh = Ledger(directory_id, GROUP, FileLayout())
        importer = Importer.open(self, self, self, fresh=fresh, group=None)
        assert importer.begin_batch([TOPIC], ImportPolicy()) is not None
        return importer

    def landed(self) -> Counter[tuple[int, int]]:
        """How often each record is in the files."""
        return Counter(
            (each.partition, offset)
            for each in self.files.values()
            for offset in range(each.start_offset, each.end_offset)
        )


RUNS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 8)), max_size=3),
        st.one_of(st.none(), st.integers(0, 40)),
        st.one_of(st.none(), st.integers(1, 10)),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@given(runs=RUNS)
def test_every_record_lands_once_wherever_runs_are_killed(
    runs: list[tuple[list[tuple[int, int]], int | None, int | None, bool]],
) -> None:
    world = World()
    for grown, steps, records_max, is_power_cut in runs:
        for partition, count in grown:
            world.grow(partition, count)
        try:
            world.run(ImportPolicy(records_max=records_max), steps=steps)
        except Killed:
            if is_power_cut:
                world.marked.clear()
        assert max(world.landed().values(), default=1) == 1
    world.run(ImportPolicy())
    assert world.landed() == {
        (where.partition, offset): 1
        for where, extent in world.extents_now.items()
        for offset in range(extent.latest)
    }
    assert {where: each.offset for where, each in world.group.items()} == {
        where: extent.latest for where, extent in world.extents_now.items()
    }
    last = world.load()
    assert last is None or (last.batch is None and not world.marked)


def test_a_run_killed_at_each_of_its_steps_is_finished_by_the_next() -> None:
    steps = 0
    while True:
        world = World()
        world.grow(0, 7)
        world.grow(1, 2)
        try:
            world.run(ImportPolicy(), steps=steps)
        except Killed:
            world.grow(0, 5)
            world.run(ImportPolicy())
            assert len(world.landed()) == 14 and set(world.landed().values()) == {1}
            steps += 1
            continue
        assert steps > 12, "there were that many places to die"
        return


def test_of_two_directories_that_take_a_group_for_new_one_is_refused_before_it_lands() -> None:
    first, second = World(), World()
    first.grow(0, 5)
    second.extents_now, second.group = first.extents_now, first.group
    importers = first.planned("d1"), second.planned("d2")
    assert importers[0].write_batch().records == 5
    with pytest.raises(ImportRefused, match="imports into"):
        importers[1].write_batch()
    assert not second.files and first.group[at(0)].offset == 5


def test_a_partition_that_another_directory_takes_for_new_is_refused_before_it_lands() -> None:
    first, second = World(), World()
    first.grow(0, 5)
    second.extents_now, second.group = first.extents_now, first.group
    assert first.run(ImportPolicy()) == 5
    first.grow(1, 2)
    importer = first.planned("d1")
    second.commit(GROUP, {at(1): Span("t1", 0, 0)}, commit_metadata("d2", "/data/other"))
    with pytest.raises(ImportRefused, match="/data/other"):
        importer.write_batch()
    assert sum(first.landed().values()) == 5


def test_a_directory_whose_group_was_taken_while_it_landed_commits_nothing() -> None:
    first, second = World(), World()
    first.grow(0, 5)
    second.extents_now, second.group = first.extents_now, first.group
    importer = first.planned("d1")

    def overtaken(ledger: Ledger, ranges: Mapping[int, OffsetRange]) -> dict[int, RangeResult]:
        landed = first(ledger, ranges)
        # It had looked before the other's note was there.
        note = commit_metadata("another", "/data/other")
        second.commit(ledger.group, {at(0): Span("", 0, 0)}, note)
        return landed

    importer.tasks = overtaken
    with pytest.raises(ImportRefused, match="/data/other"):
        importer.write_batch()
    assert first.group == {at(0): Committed(0, commit_metadata("another", "/data/other"))}


def test_an_import_from_the_end_writes_records_produced_between_two_runs() -> None:
    world = World()
    world.grow(0, 5)
    assert world.run(ImportPolicy(from_latest=True)) == 0
    world.grow(0, 2)
    world.grow(1, 3)
    assert world.run(ImportPolicy(from_latest=True)) == 5
    assert set(world.landed()) == {(0, 5), (0, 6), (1, 0), (1, 1), (1, 2)}


def test_a_group_that_a_reader_has_left_is_gone_on_with() -> None:
    world = World()
    world.grow(0, 5)
    world.group[at(0)] = Committed(3, "a consumer's own text")
    assert world.run(ImportPolicy()) == 2
    assert set(world.landed()) == {(0, 3), (0, 4)}


def test_a_landing_is_as_large_as_was_asked_for_and_takes_from_every_partition() -> None:
    world = World()
    world.grow(0, 100)
    world.grow(1, 2)
    world.grow(2, 50)
    assert world.run(ImportPolicy(records_max=21)) == 21
    assert Counter(partition for partition, _ in world.landed()) == {0: 10, 1: 2, 2: 9}


@pytest.mark.parametrize(
    ("offset", "sentence"),
    [(2, r"\[2, 5\) would be imported twice"), (7, r"\[5, 7\) would be left out")],
)
def test_a_group_that_was_taken_elsewhere_is_refused(offset: int, sentence: str) -> None:
    world = World()
    world.grow(0, 5)
    world.run(ImportPolicy())
    world.grow(0, 5)
    world.group[at(0)] = Committed(offset)
    before = world.stored
    with pytest.raises(ImportRefused, match=f"{sentence}.*reset import --topic clicks:0 --to-off"):
        world.run(ImportPolicy())
    assert world.stored == before


def test_a_commit_that_the_broker_has_forgotten_changes_nothing() -> None:
    world = World()
    world.grow(0, 5)
    world.run(ImportPolicy())
    world.grow(0, 1)
    world.group[at(0)] = Committed(2, commit_metadata("d1", "/data"))
    assert world.run(ImportPolicy()) == 1
    world.group.clear()
    world.grow(0, 1)
    assert world.run(ImportPolicy()) == 1
    assert world.group[at(0)].offset == 7


def test_a_group_that_lands_in_another_directory_is_refused() -> None:
    world = World()
    world.grow(0, 5)
    world.group[at(0)] = Committed(2, commit_metadata("d2", "/data/there"))
    with pytest.raises(ImportRefused, match=r"group import imports into /data/there.*group delete"):
        world.run(ImportPolicy())
    assert world.stored is None


def test_a_topic_that_was_created_again_is_refused() -> None:
    world = World()
    world.grow(0, 5)
    world.run(ImportPolicy())
    world.extents_now[at(0)] = Extent("t2", 0, 9)
    with pytest.raises(ImportRefused, match=r"deleted and created again.*another directory"):
        world.run(ImportPolicy())


def test_records_that_retention_took_first_are_told_of_and_left_out_only_when_asked_to() -> None:
    world = World()
    world.grow(0, 5)
    world.run(ImportPolicy())
    world.extents_now[at(0)] = Extent("t1", 8, 10)
    with pytest.raises(DataLost, match=r"\[5, 8\) are gone.*--skip-lost"):
        world.run(ImportPolicy())
    assert world.run(ImportPolicy(skip_lost=True)) == 2
    assert world.group[at(0)].offset == 10


def test_a_log_that_was_cut_back_behind_the_import_is_refused() -> None:
    world = World()
    world.grow(0, 5)
    world.run(ImportPolicy())
    world.extents_now[at(0)] = Extent("t1", 0, 4)
    with pytest.raises(ImportRefused, match=r"stopped at offset 5, and the log ends at 4"):
        world.run(ImportPolicy(skip_lost=True))


def test_a_directory_keeps_its_group_and_the_form_of_its_files() -> None:
    world = World()
    world.grow(0, 1)
    world.run(ImportPolicy())
    with pytest.raises(ImportRefused, match="is imported with group import"):
        Importer.open(world, world, world, fresh=FRESH, group="other")
    for shape, sentence in (
        (FileLayout("csv"), "files of parquet, and --format is csv"),
        (
            FileLayout(partition_by=("date", "hour")),
            "files of none, and --partition-by is date,hour",
        ),
    ):
        fresh = Ledger("d1", GROUP, shape)
        with pytest.raises(ImportRefused, match=sentence):
            Importer.open(world, world, world, fresh=fresh, group=None)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version": 2}', b'{"version": 1}', b"null"])
def test_a_damaged_ledger_is_called_so(data: bytes) -> None:
    with pytest.raises(LedgerError, match=r"damaged|version 2"):
        decode(data)


def test_a_ledger_comes_back_from_its_bytes() -> None:
    landing = ImportBatch(3, {at(1): Span("t1", 4, 9)}, (OffsetRange(TOPIC, "t1", 1, 4, 6),), "{}")
    held = {at(0): Span("t1", 0, 7), TopicPartition("views", 12): Span("t2", 5, 5)}
    ledger = Ledger("d1", GROUP, FileLayout("json", ("date",), "{}"), held, 2, landing)
    assert decode(encode(ledger)) == ledger


PIECE_CORRUPT = CorruptCounts(PIECE, PIECE, {"temp": FieldExample(PIECE, "clicks-0", 0, "warm")})
"""All records of a range."""


def test_a_batch_of_nothing_but_corrupt_records_leaves_no_file_wherever_it_is_killed() -> None:
    steps = 0
    while True:
        world = World(corrupt=PIECE_CORRUPT, layout=FileLayout(schema=parse_schema("temp boolean")))
        world.grow(0, 2 * PIECE)
        try:
            with pytest.raises(TooManyCorrupt, match=r"6 of 6 .* clicks-0 offset 0: 'warm'"):
                world.run(ImportPolicy(), steps=steps, limit=CorruptLimit())
            is_killed = False
        except Killed:
            is_killed = True
            with pytest.raises(TooManyCorrupt):
                world.run(ImportPolicy(), limit=CorruptLimit())
        assert not world.files and not world.marked
        # The schema is corrected.
        world.corrupt, world.layout = (
            NOTHING_CORRUPT,
            FileLayout(schema=parse_schema("temp string")),
        )
        assert world.run(ImportPolicy(), limit=CorruptLimit()) == 2 * PIECE
        assert len(world.landed()) == 2 * PIECE and set(world.landed().values()) == {1}
        if not is_killed:
            assert steps > 12, "there were that many places to die"
            return
        steps += 1


def test_a_directory_that_has_records_takes_a_batch_of_corrupt_ones_unless_told_otherwise() -> None:
    world = World()
    world.grow(0, PIECE)
    assert world.run(ImportPolicy(), limit=CorruptLimit()) == PIECE
    world.corrupt = PIECE_CORRUPT
    world.grow(0, PIECE)
    with pytest.raises(TooManyCorrupt, match="--max-corrupt is 99%"):
        world.run(ImportPolicy(), limit=CorruptLimit.parse("99%"))
    assert len(world.landed()) == PIECE
    assert world.run(ImportPolicy(), limit=CorruptLimit()) == PIECE


@pytest.mark.parametrize(
    ("limit", "corrupt", "is_over"),
    [
        (None, 10, True),
        (None, 9, False),
        ("0", 0, False),
        ("0", 1, True),
        ("3", 3, False),
        ("3", 4, True),
        ("30%", 3, False),
        ("30%", 4, True),
        ("39.9%", 4, True),
        ("100%", 10, False),
    ],
)
def test_a_limit_holds_for_the_records_of_a_batch(
    limit: str | None, corrupt: int, is_over: bool
) -> None:
    counts = replace(PIECE_CORRUPT, records=corrupt)
    excess = CorruptLimit.parse(limit).excess(counts, 10, is_first=True)
    assert (excess is not None) == is_over


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "101%", "%", "1e9"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--max-corrupt"):
        CorruptLimit.parse(text)


def test_the_result_of_a_range_comes_back_from_its_marker() -> None:
    result = RangeResult(3, 10, 1, PIECE_CORRUPT, ("hmid",))
    assert RangeResult.decode(result.encode()) == result
    assert RangeResult.decode('{"records": 3, "size_bytes": 10, "files": 1}') == RangeResult(
        3, 10, 1
    )
    assert RangeResult.decode('{"records": 3, "corrupt": {}}') is None


FIELDS = FileLayout(schema=parse_schema("user string, place struct<city: string>"))


def test_fields_that_are_added_to_the_schema_are_in_the_files_from_then_on() -> None:
    world = World(layout=FIELDS)
    world.grow(0, 2 * PIECE)
    with pytest.raises(Killed):
        world.run(ImportPolicy(), steps=4)
    wider = parse_schema("age int, user string, place struct<city: string>, tags array<string>")
    world.layout = FileLayout(schema=wider)
    layouts: list[str | None] = []
    write = world.__call__

    def noted(ledger: Ledger, ranges: Mapping[int, OffsetRange]) -> dict[int, RangeResult]:
        layouts.append(ledger.batch_layout.schema)
        return write(ledger, ranges)

    world.grow(1, PIECE)
    world.steps_left = None
    fresh = replace(FRESH, layout=world.layout)
    importer = Importer.open(world, world, world, fresh=fresh, group=None)
    importer.tasks = noted
    importer.write_batch()
    assert importer.begin_batch([TOPIC], ImportPolicy()) is not None
    importer.write_batch()
    assert layouts == [FIELDS.schema, wider], "the open batch is finished as it was begun"
    stored = world.load()
    assert stored is not None and stored.layout.schema == wider


def test_a_field_that_was_added_with_a_wrong_type_can_be_corrected_when_its_batch_is_given_up() -> (
    None
):
    world = World(layout=FIELDS)
    world.grow(0, PIECE)
    world.run(ImportPolicy())
    fields = "user string, place struct<city: string>"
    world.layout = FileLayout(schema=parse_schema(f"{fields}, temp boolean"))
    world.corrupt = PIECE_CORRUPT
    world.grow(0, PIECE)
    with pytest.raises(TooManyCorrupt):
        world.run(ImportPolicy(), limit=CorruptLimit.parse("0"))
    world.layout = FileLayout(schema=parse_schema(f"{fields}, temp double"))
    world.corrupt = NOTHING_CORRUPT
    assert world.run(ImportPolicy(), limit=CorruptLimit.parse("0")) == PIECE
    assert set(world.landed().values()) == {1} and len(world.landed()) == 2 * PIECE


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        (FileLayout(schema=parse_schema("user string")), "place is missing"),
        (
            FileLayout(schema=parse_schema("user int, place struct<city: string>")),
            "user has another type",
        ),
        (
            FileLayout(schema=parse_schema("user string, place struct<city: string, zip: int>")),
            "place has another type",
        ),
        (
            FileLayout(
                schema=parse_schema("user string, place struct<city: string>, `Offset` long")
            ),
            "a column Offset that is not the field",
        ),
        (FileLayout(), "files of another --schema; give the same"),
    ],
)
def test_other_changes_of_the_schema_are_refused(layout: FileLayout, sentence: str) -> None:
    world = World(layout=FIELDS)
    world.grow(0, 1)
    world.run(ImportPolicy())
    world.layout = layout
    with pytest.raises(ImportRefused, match=sentence):
        world.run(ImportPolicy())


def test_a_field_is_not_added_to_csv_where_columns_have_positions() -> None:
    world = World(layout=FileLayout("csv", schema=parse_schema("user string")))
    world.grow(0, 1)
    world.run(ImportPolicy())
    world.layout = FileLayout("csv", schema=parse_schema("user string, age int"))
    with pytest.raises(ImportRefused, match="age is new, and columns of CSV"):
        world.run(ImportPolicy())


def test_an_open_batch_that_names_no_schema_has_that_of_the_directory() -> None:
    landing = ImportBatch(1, {at(0): Span("t1", 0, 1)}, (OffsetRange(TOPIC, "t1", 0, 0, 1),), "{}")
    ledger = Ledger("d1", GROUP, FileLayout(schema="{}"), batch=landing)
    document = json.loads(encode(ledger))
    del document["landing"]["schema"]
    assert decode(json.dumps(document).encode()) == ledger
