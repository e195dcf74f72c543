"""The word count on the state store of Quix Streams.

Invariant: one transaction of the store per commit interval, as `Application` has it; the position
in the input is part of it. A whole application needs a Kafka broker: what it would add (reading
and decoding messages, the changelog topic, committing offsets) is not in the figures.
"""

from pathlib import Path
from typing import Any, Final

from quixstreams.state.rocksdb import RocksDBStore

from tidelog_bench.embedded.meter import CLOCK, between
from tidelog_bench.embedded.words import Stages, Words, counted
from tidelog_bench.peers.task import Task

_POSITION: Final = b"position"
PACKAGE = "quixstreams"


def run(task: Task) -> dict[str, float]:
    """Count in this process; then read the counts from the store opened again."""
    words = task.words()
    stages = task.stages(words)
    commits: list[float] = []
    with _store(task.durable) as store:
        _count(store.assign_partition(0), stages, task.checkpoint_s, commits)
        assert stages.start and stages.end
        within = between(commits, stages.start, stages.end)
        found = task.figures(stages.start, stages.end, within)
    with _store(task.durable) as store:
        counts = _restored(store.assign_partition(0), words)
    task.check(counts, words, stages.end.records)
    return found


def _store(directory: Path) -> Any:
    return RocksDBStore(name="counts", stream_id="words", base_dir=str(directory))


def _count(partition: Any, stages: Stages, commit_s: float, commits: list[float]) -> None:
    position, due = 0, CLOCK.monotonic() + commit_s
    transaction = partition.begin()
    while (words := stages.read(position)) is not None:
        for word, count in counted(words):
            state = transaction.as_state(prefix=word.encode())
            state.set("count", state.get("count", 0) + count)
        position += len(words)
        if CLOCK.monotonic() >= due:
            _commit(transaction, position)
            commits.append(CLOCK.monotonic())
            due = CLOCK.monotonic() + commit_s
            transaction = partition.begin()
    _commit(transaction, position)


def _commit(transaction: Any, position: int) -> None:
    transaction.as_state(prefix=_POSITION).set("position", position)
    transaction.prepare()
    transaction.flush()


def _restored(partition: Any, words: Words) -> dict[str, int]:
    transaction = partition.begin()
    states = ((word, transaction.as_state(prefix=word.encode())) for word in words.fill)
    return {word: count for word, of in states if (count := of.get("count")) is not None}
