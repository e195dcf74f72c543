"""Jobs as a user writes them, which run embedded and on Spark from this very file."""

from operator import attrgetter

from tests.spark.job.jobs import DELAY_MS, Streaks, both, pair_up, stat, text
from tidelog import (
    FileSink,
    Job,
    JobArguments,
    JsonLinesSource,
    KafkaSink,
    KafkaSource,
    KeyedStream,
    PostgresSink,
    Session,
    Sliding,
    Stream,
    Tumbling,
)

COLUMNS = {"k": "text", "start_ms": "bigint", "n": "bigint"}


def revenue(arguments: JobArguments) -> Job:
    job = Job("revenue")
    sums = _keyed(job, arguments).sum(attrgetter("v"), emit_updates=True)
    assert arguments.output is not None
    sums.sink(FileSink(arguments.output, fields=("k", "revenue")))
    return job


def sessions(arguments: JobArguments) -> Job:
    """Values of types that Spark does not have."""
    job = Job("sessions")
    windows = _keyed(job, arguments).window(Session("1500ms")).aggregate(stat, both)
    return _written(job, windows, arguments)


def tumbling(arguments: JobArguments) -> Job:
    job = Job("tumbling")
    windows = _keyed(job, arguments).window(Tumbling("7s")).sum(lambda row: 2**70 + row.v)
    return _written(job, windows, arguments)


def sliding(arguments: JobArguments) -> Job:
    job = Job("sliding")
    windows = _keyed(job, arguments).window(Sliding("9s", "2s")).count()
    return _written(job, windows, arguments)


def top(arguments: JobArguments) -> Job:
    job = Job("top")
    windows = _keyed(job, arguments).window(Tumbling("20s")).top(3, by=attrgetter("v", "n"))
    return _written(job, windows, arguments)


def deduplicate(arguments: JobArguments) -> Job:
    job = Job("deduplicate")
    first = _keyed(job, arguments).deduplicate(attrgetter("tag"), ttl="1h")
    return _written(job, first.map(attrgetter("k", "tag")), arguments)


def join(arguments: JobArguments) -> Job:
    job = Job("join")
    left, right = (_keyed(job, arguments, name) for name in ("left", "right"))
    pairs = left.join(right, ("-2s", "2s"))
    return _written(job, pairs.map(lambda pair: (pair[0].k, pair[0].n, pair[1].n)), arguments)


def enrich(arguments: JobArguments) -> Job:
    job = Job("enrich")
    left, right = (_keyed(job, arguments, name) for name in ("left", "right"))
    return _written(job, left.enrich(right, pair_up), arguments)


def processor(arguments: JobArguments) -> Job:
    """Timers of event time, and a time to live."""
    job = Job("processor")
    rows = _keyed(job, arguments).transform_with_state(Streaks, time_mode="event")
    return _written(job, rows, arguments)


def topics(arguments: JobArguments) -> Job:
    """Copies a topic of Kafka into another one; `own` has the bootstrap servers and both topics."""
    bootstrap, source, target = arguments.own
    job, stop = Job("topics"), None if arguments.follow else "latest"
    messages = job.source(KafkaSource(source, bootstrap=bootstrap, value="json", stop=stop))
    timed = messages.event_time(lambda record: record.value["t"], max_delay_ms=DELAY_MS)
    counts = timed.key_by(lambda record: record.value["k"]).window(Tumbling("5s")).count()
    # Names of Kafka's transactions are those of one job in the cluster, and this is run as two.
    counts.sink(KafkaSink(target, bootstrap=bootstrap, prefix=target))
    return job


def table(arguments: JobArguments) -> Job:
    """Counts the records of files into a table of PostgreSQL; `own` has the connection string."""
    (conninfo,) = arguments.own
    job = Job("table")
    counts = _keyed(job, arguments).window(Tumbling("5s")).count()
    counts.sink(PostgresSink(conninfo, "counts", COLUMNS))
    return job


def _keyed(job: Job, arguments: JobArguments, name: str = "source") -> KeyedStream:
    source = JsonLinesSource(arguments.required_input() / name, follow=arguments.follow)
    timed = job.source(source, name=name).event_time(
        attrgetter("t"), max_delay_ms=DELAY_MS, name=f"time-{name}"
    )
    return timed.key_by(attrgetter("k"))


def _written(job: Job, records: Stream, arguments: JobArguments) -> Job:
    assert arguments.output is not None
    records.map(text, name="text").sink(FileSink(arguments.output))
    return job
