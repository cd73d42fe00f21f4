# %% [markdown]
# # A year of departures, hour by hour, as a stream
#
#     pip install 'millrace[demo]'        (and Java 17 or newer)
#     python examples/streaming_flights.py --limit 50000
#
# The flights that were to leave New York City in 2013 are sent as they were scheduled, only faster,
# while Spark counts the departures of each hour and adds up their delays. Cell by cell it runs in
# any editor that knows `# %%`.

# %%
import argparse
import atexit
import itertools
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from millrace.sync import Admin, Producer
from millrace_cli.demo.flights import Delay, delays_of_csv, flight_records, flights_file
from millrace_server.testing import BrokerThread
from millrace_spark import session

parser = argparse.ArgumentParser()
parser.add_argument("--speed", type=int, default=25_000, help="flights a second")
parser.add_argument("--limit", type=int, help="only the first so many flights of the CSV file")
# A notebook has arguments of its own.
arguments, _ = parser.parse_known_args()

# %% [markdown]
# A broker in this process, on a temporary directory. One partition keeps all flights in one order;
# retention would remove what is as old as 2013.

# %%
running = ExitStack()
atexit.register(running.close)
broker = running.enter_context(BrokerThread())
with Admin(broker.servers) as admin:
    admin.create_topic("flights", partitions=1, configs={"retention.ms": -1})

# %% [markdown]
# The producer, in a thread. A record is a flight as JSON, its timestamp the scheduled departure;
# the file is not in that order (October comes after January), so the flights are sorted.

# %%
flights = sorted(
    itertools.chain.from_iterable(
        zip(chunk.timestamps_ms, chunk.keys, chunk.values, strict=True)
        for chunk in flight_records(flights_file(), limit=arguments.limit, chunk_rows=20_000)
    )
)


def send_flights() -> int:
    """Sends them all, a fifth of a second's worth at a time."""
    started = time.monotonic()
    step = max(1, arguments.speed // 5)
    with Producer(broker.servers) as producer:
        for sent in range(0, len(flights), step):
            timestamps_ms, keys, values = zip(*flights[sent : sent + step], strict=True)
            producer.send_many(
                "flights", list(values), keys=list(keys), timestamps_ms=list(timestamps_ms)
            )
            ahead_s = (sent + len(values)) / arguments.speed - (time.monotonic() - started)
            time.sleep(max(0.0, ahead_s))
    return len(flights)


# %% [markdown]
# The stream: a row for each hour, counted by the records' timestamps; cancelled flights have no
# delay. The watermark is two hours behind the latest flight: an hour that ends before it is taken
# for complete and forgotten, and a flight of that hour that came now would be left out. In one
# order, none does. No micro-batch has more than a second's worth of flights.

# %%
warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
spark = session(
    "streaming flights",
    conf={
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.shuffle.partitions": "2",
    },
)
running.callback(spark.stop)
hourly = (
    spark.readStream.format("millrace")
    .option("millrace.servers", broker.servers)
    .option("subscribe", "flights")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", arguments.speed)
    .load()
    .withColumn("flight", f.from_json(f.col("value").cast("string"), "dep_delay int"))
    .withWatermark("timestamp", "2 hours")
    .where("flight.dep_delay IS NOT NULL")
    .groupBy(f.window("timestamp", "1 hour"))
    .agg(f.count("*").alias("departures"), f.sum("flight.dep_delay").alias("minutes"))
    .select(
        f.unix_timestamp("window.start").alias("start_s"),
        f.date_format("window.start", "yyyy-MM-dd HH:mm").alias("hour"),
        *("departures", "minutes"),
    )
)

# %% [markdown]
# In the output mode `update` each micro-batch hands over the hours that it has changed. An hour
# that is still growing comes again, with its new figures.

# %%
hours: dict[int, Delay] = {}


def show(changed: DataFrame, batch_id: int) -> None:
    """Keeps the new figures, and prints those of the last two hours."""
    rows = sorted(changed.collect())
    for row in rows:
        hours[row.start_s] = Delay(row.departures, row.minutes)
    told = "; ".join(
        f"{row.hour}: {row.departures} departed, {hours[row.start_s].mean:.1f} min late"
        for row in rows[-2:]
    )
    if rows:
        print(f"batch {batch_id}: {len(rows)} hours changed; {told}", flush=True)


query = (
    hourly.writeStream.outputMode("update")
    .foreachBatch(show)
    .option("checkpointLocation", running.enter_context(tempfile.TemporaryDirectory()))
    .start()
)

# %% [markdown]
# Start the flights, and end when the last one is through.

# %%
with ThreadPoolExecutor() as threads:
    sent = threads.submit(send_flights).result()
query.processAllAvailable()
progress = query.lastProgress
query.stop()

# %% [markdown]
# The same from the CSV file, without broker and Spark.

# %%
streamed = sum(hours.values(), Delay())
expected = sum(delays_of_csv(flights_file(), limit=arguments.limit).values(), Delay())
assert progress is not None
print(f"watermark: {progress.eventTime['watermark']}")
print(
    f"{sent:,} flights in {len(hours):,} hours: {streamed.departures:,} departures, "
    f"{streamed.mean:.2f} minutes late on average"
)
print(
    f"the CSV file has {expected.departures:,} departures, {expected.mean:.2f} minutes late: "
    + ("equal" if streamed == expected else "NOT equal")
)
running.close()
if streamed != expected:
    raise SystemExit(1)
