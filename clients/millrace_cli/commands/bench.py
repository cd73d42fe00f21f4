"""`millrace bench`: what a broker, and one client of it, can do.

Owns the flags; `millrace_cli.bench` sends, reads and measures. A command imports its needs when it
runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.bench import STAMP_BYTES
from millrace_cli.client_settings import (
    Acks,
    AcksFlag,
    Codec,
    Compression,
    Settings,
    client_settings,
    producer_settings,
)
from millrace_cli.exits import Exit, run
from millrace_cli.json_output import Json
from millrace_cli.servers import (
    DEFAULT_BROKER_TIMEOUT_S,
    DEFAULT_SERVERS,
    BrokerTimeout,
    Servers,
)

if TYPE_CHECKING:
    from millrace_cli.bench.temporary_topic import TopicSettings

bench = typer.Typer(
    name="bench",
    help="Measure throughput and latency of a broker, with one client.",
    no_args_is_help=True,
)
RECORDS = 1_000_000
RECORD_SIZE = 100
RECORDS_MAX = 10**10
RECORD_SIZE_MAX = 16 * 1024 * 1024

Topic = Annotated[
    str | None,
    typer.Argument(
        metavar="TOPIC",
        help="An existing topic.  [default: a temporary one, which the command removes]",
    ),
]
Records = Annotated[
    int, typer.Option("--records", "-n", min=1, max=RECORDS_MAX, help="Records to send.")
]
RecordSize = Annotated[
    int,
    typer.Option(
        "--record-size", metavar="BYTES", min=1, max=RECORD_SIZE_MAX, help="Size of each value."
    ),
]
StampedSize = Annotated[
    int,
    typer.Option(
        "--record-size",
        metavar="BYTES",
        min=STAMP_BYTES,
        max=RECORD_SIZE_MAX,
        help="Size of each value.",
    ),
]
Throughput = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=10**8,
        help="At most N records per second.  [default: as fast as possible]",
    ),
]
Linger = Annotated[
    int | None,
    typer.Option(
        "--linger",
        metavar="MS",
        min=0,
        max=60_000,
        help="How long a batch may wait for more records.  [default: 5]",
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES", min=1, help="A batch is sent when it has so much.  [default: 1000000]"
    ),
]
RecordsToRead = Annotated[
    int | None,
    typer.Option(
        "--records",
        "-n",
        min=1,
        max=RECORDS_MAX,
        help=f"Records to read.  [default: all of TOPIC, {RECORDS:,} of a temporary one]",
    ),
]
FilledSize = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES",
        min=1,
        max=RECORD_SIZE_MAX,
        help=f"Temporary topic: size of each value.  [default: {RECORD_SIZE}]",
    ),
]
FilledCompression = Annotated[
    Codec | None,
    typer.Option("--compression", "-z", help="Temporary topic: compression of batches."),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        "--partitions", min=1, help="Temporary topic: number of partitions.  [default: 1]"
    ),
]
Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="KEY=VALUE",
        help="Temporary topic: a setting, such as durability=os; may be repeated.",
    ),
]


@bench.callback()
def _bench() -> None:
    pass


@bench.command()
def produce(
    topic: Topic = None,
    records: Records = RECORDS,
    record_size: RecordSize = RECORD_SIZE,
    throughput: Throughput = None,
    acks: AcksFlag = Acks.ALL,
    compression: Compression = Codec.NONE,
    linger_ms: Linger = None,
    batch_size: BatchSize = None,
    partitions: Partitions = None,
    config: Config = None,
    setting: Settings = None,
    as_json: Json = False,
    broker_timeout_s: BrokerTimeout = DEFAULT_BROKER_TIMEOUT_S,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Send records of random letters; measure how many per second, and the latency of acks.

    A latency is the time from sending a record to its ack. With --throughput it begins when the
    record is due. Without it, records wait in the producer's buffer, and that wait counts.

    In a pipe, the summary is one line: records, not acked, bytes, seconds, records/s, MB/s, latency
    in ms (mean, p50, p95, p99, p99.9, max), CPU seconds of this process. With --acks 0 there are no
    acks and no latencies.

    The first failure ends the run. After ^C or SIGTERM the command waits up to 5 seconds for acks,
    prints the summary, and removes its temporary topic.
    """
    flags = {"linger_ms": linger_ms, "batch_bytes": batch_size}
    pairs = [f"{name}={value}" for name, value in flags.items() if value is not None]
    settings = producer_settings([*pairs, *(setting or ())], compression, acks, broker_timeout_s)
    temporary = _topic_settings(topic, partitions, config)

    async def work() -> Exit:
        from millrace_cli.bench.measurement import summarized
        from millrace_cli.bench.produce_load import ProduceLoad
        from millrace_cli.bench.temporary_topic import used_topic

        async with used_topic(topic, temporary, servers, broker_timeout_s) as name:
            load = ProduceLoad(
                name,
                records=records,
                record_size=record_size,
                throughput=throughput,
                is_acked=settings["acks"] != 0,
            )
            with summarized(load.measurement, "not_acked", as_json=as_json):
                await load.run(servers, settings, action="producing")
        return Exit.OK

    run(work())


@bench.command()
def consume(
    topic: Topic = None,
    records: RecordsToRead = None,
    record_size: FilledSize = None,
    compression: FilledCompression = None,
    partitions: Partitions = None,
    config: Config = None,
    setting: Settings = None,
    as_json: Json = False,
    broker_timeout_s: BrokerTimeout = DEFAULT_BROKER_TIMEOUT_S,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Read records from the beginning of a topic; measure how many per second.

    A temporary topic is filled first, which is not measured. The time begins before the consumer
    connects, and each record is decoded. A latency is the wait of the consumer for one batch.

    In a pipe, the summary is one line: records, bytes, seconds, records/s, MB/s, latency in ms
    (mean, p50, p95, p99, p99.9, max), CPU seconds of this process.
    """
    from millrace.config import ConsumerConfig

    settings = client_settings(setting, ConsumerConfig)
    temporary = _topic_settings(topic, partitions, config)
    for flag, value in (("--record-size", record_size), ("--compression", compression)):
        if topic is not None and value is not None:
            raise typer.BadParameter(f"{flag} is for a temporary topic: leave it or {topic} out")

    async def work() -> Exit:
        from millrace_cli.bench.consume_run import ConsumeRun
        from millrace_cli.bench.measurement import summarized
        from millrace_cli.bench.produce_load import ProduceLoad
        from millrace_cli.bench.temporary_topic import used_topic

        async with used_topic(topic, temporary, servers, broker_timeout_s) as name:
            if topic is None:
                load = ProduceLoad(
                    name, records=records or RECORDS, record_size=record_size or RECORD_SIZE
                )
                filling = producer_settings(
                    None, compression or Codec.NONE, Acks.ALL, broker_timeout_s
                )
                await load.run(servers, filling, action="filling")
            reading = ConsumeRun(name, records=records)
            with summarized(reading.measurement, "", as_json=as_json):
                await reading.run(servers, settings, broker_timeout_s=broker_timeout_s)
        return Exit.OK

    run(work())


@bench.command()
def latency(
    topic: Topic = None,
    records: Records = 10_000,
    record_size: StampedSize = RECORD_SIZE,
    throughput: Throughput = None,
    acks: AcksFlag = Acks.ALL,
    compression: Compression = Codec.NONE,
    partitions: Partitions = None,
    config: Config = None,
    as_json: Json = False,
    broker_timeout_s: BrokerTimeout = DEFAULT_BROKER_TIMEOUT_S,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Send one record after the other; measure the time until a consumer has each.

    The next record is sent when the one before has arrived. Records of other producers of TOPIC are
    read and ignored.

    In a pipe, the summary is one line: records, not received, bytes, seconds, records/s, MB/s,
    latency in ms (mean, p50, p95, p99, p99.9, max), CPU seconds of this process.
    """
    settings = producer_settings(None, compression, acks, broker_timeout_s)
    temporary = _topic_settings(topic, partitions, config)

    async def work() -> Exit:
        from millrace_cli.bench.latency_run import LatencyRun
        from millrace_cli.bench.measurement import summarized
        from millrace_cli.bench.temporary_topic import used_topic

        async with used_topic(topic, temporary, servers, broker_timeout_s) as name:
            exchange = LatencyRun(
                name, records=records, record_size=record_size, throughput=throughput
            )
            with summarized(exchange.measurement, "not_received", as_json=as_json):
                await exchange.run(servers, settings, broker_timeout_s=broker_timeout_s)
        return Exit.OK

    run(work())


def _topic_settings(
    topic: str | None, partitions: int | None, config: list[str] | None
) -> TopicSettings:
    from millrace_cli.bench.temporary_topic import TopicSettings
    from millrace_cli.commands.topic import topic_configs

    configs = topic_configs(config)
    if topic is not None and (partitions is not None or configs):
        raise typer.BadParameter(
            f"--partitions and --config are for a temporary topic: leave them or {topic} out"
        )
    return TopicSettings(partitions or 1, configs)
