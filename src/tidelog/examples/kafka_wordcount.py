"""Word count over Kafka, with a kill in the middle: are the counts still right?

    python -m tidelog.examples.kafka_wordcount

It fetches a broker of Apache Kafka once and starts it, writes the text of Python's own modules into
a topic, counts the words with a job that runs in a process of its own, kills that with SIGKILL and
starts it again, and compares the counts with a plain count of the same text.
"""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import add, itemgetter
from pathlib import Path
from typing import Any, Final

import click

from tidelog.connectors.files.sink import Files
from tidelog.connectors.kafka import KafkaRecord, KafkaSource
from tidelog.connectors.kafka.client import Cluster, failures, library
from tidelog.effects import Effects, hold_thread
from tidelog.errors import StoreUnreachableError, TidelogError, UserFunctionError
from tidelog.examples.kafka_broker import Broker
from tidelog.examples.wordcount import count_words
from tidelog.runtime.config import JobArguments
from tidelog.runtime.graph import Job

_BOOTSTRAP: Final = "TIDELOG_EXAMPLE_BOOTSTRAP"
_TOPIC: Final = "TIDELOG_EXAMPLE_TOPIC"
_FIRST_ANSWER_S: Final = 10.0
_ANSWER_S: Final = 60.0
_KILL_AT: Final = 3
"""Slots of the store: the start, and two checkpoints."""


def job(arguments: JobArguments) -> Job:
    """Counts the words of the topic that the environment names, up to its end."""
    lines = KafkaSource(
        os.environ[_TOPIC], bootstrap=os.environ[_BOOTSTRAP], value="text", stop="latest"
    )
    counting = Job("kafka-wordcount")
    (
        counting.source(lines)
        .map_batches(words_of)
        .key_by(itemgetter(0))
        .aggregate(itemgetter(1), add, name="count")
        .sink(Files(arguments.output or "counts", fields=("word", "count")))
    )
    return counting


def words_of(records: Iterable[KafkaRecord]) -> list[tuple[str, int]]:
    """The words of a buffer of records, with their counts."""
    return count_words(record.value for record in records)


def texts(megabytes: float) -> Iterator[str]:
    """Lines of the modules of Python's standard library, as many as that."""
    left = megabytes * 1e6
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        for line in path.read_text("utf-8", "replace").splitlines():
            if left <= 0:
                return
            left -= len(line) + 1
            yield line


@click.command()
@click.option("--bootstrap", help="Brokers to use, HOST:PORT; without it one is started.")
@click.option("--topic", default="tidelog-wordcount", show_default=True, help="A new topic.")
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True)
@click.option("--megabytes", type=click.FloatRange(0.1), default=10.0, show_default=True)
def main(bootstrap: str | None, topic: str, partitions: int, megabytes: float) -> None:
    """Count the words of a Kafka topic, kill the job in between, and check the counts.

    Ends with 1 when they are wrong, with 2 when something is missing or set wrong.
    """
    try:
        with _directory() as directory, _brokers(bootstrap, directory / "broker") as address:
            cluster = Cluster(address)
            expected = _write(cluster, topic, partitions, megabytes)
            try:
                _count(address, topic, directory)
            finally:
                _remove(cluster, topic)
            right = _compare(expected, directory / "counts")
    except TidelogError as error:
        raise _WrongArguments(str(error)) from error
    except KeyboardInterrupt:
        raise click.Abort() from None
    sys.exit(0 if right else 1)


class _WrongArguments(click.ClickException):
    exit_code = 2


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tidelog-kafka-", ignore_cleanup_errors=True) as made:
        yield Path(made)


@contextmanager
def _brokers(bootstrap: str | None, directory: Path) -> Iterator[str]:
    """The brokers that the user names, or one that lives as long as this."""
    if bootstrap is not None:
        yield bootstrap
        return
    library()  # what is missing is said before anything is fetched
    broker = Broker(directory, say=click.echo)
    click.echo("starting a broker ...")
    with broker:
        yield broker.bootstrap


def _write(cluster: Cluster, topic: str, partitions: int, megabytes: float) -> Counter[str]:
    """Write the text into a new topic; returns the plain count of its words."""
    kafka = library()
    admin = cluster.admin()  # until it has answered
    with failures(f"topic {topic!r}", cluster):
        admin.list_topics(timeout=_FIRST_ANSWER_S)
        new = kafka.admin.NewTopic(topic, num_partitions=partitions)
        admin.create_topics([new], operation_timeout=_ANSWER_S)[topic].result(_ANSWER_S)
    writer = cluster.producer({"linger.ms": 20, "enable.idempotence": True})
    counts: Counter[str] = Counter()
    lines = 0
    for lines, line in enumerate(texts(megabytes), 1):
        while True:
            try:
                writer.produce(topic, line, str(lines))
                break
            except BufferError:
                writer.poll(0.1)
        counts.update(line.split())
    if left := writer.flush(_ANSWER_S):
        raise StoreUnreachableError(
            f"topic {topic!r} in {cluster}",
            expected="to take all lines",
            found=f"{left:,} not taken after {_ANSWER_S:g} s",
            action="see whether the brokers run",
        )
    click.echo(f"topic {topic}: {lines:,} lines, {counts.total():,} words, {partitions} partitions")
    return counts


def _remove(cluster: Cluster, topic: str) -> None:
    admin = cluster.admin()  # until it has answered
    with failures(f"topic {topic!r}", cluster):
        admin.delete_topics([topic])[topic].result(_ANSWER_S)


def _count(bootstrap: str, topic: str, directory: Path) -> None:
    """Run the job to its end, after a run that is killed when it has a few checkpoints."""
    store = directory / "store"
    command = [
        *(sys.executable, "-m", "tidelog", "run", "tidelog.examples.kafka_wordcount:job"),
        *("--store", str(store), "--output", str(directory / "counts")),
        *("--checkpoint-interval", "100ms", "--parallelism", "2"),
    ]
    env = {**os.environ, _BOOTSTRAP: bootstrap, _TOPIC: topic}
    click.echo("counting, until the job is killed with SIGKILL ...")
    with _running(command, env) as process:
        while process.poll() is None and _slots(store) < _KILL_AT:
            hold_thread(0.02)
        process.kill()
    if process.returncode == -signal.SIGKILL:
        click.echo(f"killed after {_slots(store) - 1} checkpoints; it goes on from the last one")
    else:
        click.echo("the job was done before it could be killed: try more --megabytes")
    click.echo("counting, to the end ...")
    began = Effects().clock.monotonic()
    with _running(command, env) as process:
        process.wait()
    if process.returncode != 0:
        raise UserFunctionError(
            "the word count",
            expected="to end with 0",
            found=f"{process.returncode}",
            action="see its message above",
        )
    click.echo(f"done in {Effects().clock.monotonic() - began:.1f} s")


@contextmanager
def _running(command: list[str], env: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def _slots(store: Path) -> int:
    """Slots written so far, those included that were deleted since."""
    names = (path.stem for path in (store / "checkpoints").glob("*.json"))
    return max((int(name) + 1 for name in names), default=0)


def _compare(expected: Counter[str], directory: Path) -> bool:
    parts = sorted(directory.glob("part-*"))
    rows: list[Any] = [json.loads(line) for part in parts for line in part.open()]
    counted = {row["word"]: row["count"] for row in rows}
    if counted == expected and len(rows) == len(counted):
        click.echo(f"verified: {len(counted):,} words, each as often as a plain count says")
        return True
    wrong = [
        word for word in expected.keys() | counted.keys() if counted.get(word) != expected.get(word)
    ]
    for word in sorted(wrong)[:5]:
        click.echo(f"{word!r}: {counted.get(word)}, a plain count says {expected.get(word)}")
    click.echo(f"WRONG: {len(wrong):,} words, and {len(rows) - len(counted):,} lines too many")
    return False


if __name__ == "__main__":
    main()
