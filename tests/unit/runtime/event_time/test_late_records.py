"""Records that come when event time has passed them: counted in every report, and a stream."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import tidelog
from tests.support.depth import in_pairs
from tests.support.pipelines import Outside, config, run
from tidelog import (
    Job,
    OutputTag,
    Replayable,
    StatefulProcessor,
    Tumbling,
    UserFunctionError,
)
from tidelog.storage.memory import MemoryStore


def plus(a: int, b: int) -> int:
    return a + b


class Echo(StatefulProcessor):
    """Emits every row that is not late."""

    def init(self, handle: Any) -> None:
        """Nothing to keep."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield from rows


@in_pairs(kind=["window", "records", "process"], parallelism=[1, 2], breaks=[False, True])
def test_late_records_are_a_stream_of_their_own_each_once(
    kind: str, parallelism: int, breaks: bool
) -> None:
    records = [(str(n % 5), n * 10) for n in range(3000)] + [("x", n) for n in range(40)]
    on_time, late, store = Outside(), Outside(), MemoryStore()

    def job(breaks: bool) -> Job:
        built, tag = Job("late"), OutputTag("late")
        timed = built.source(Replayable(records)).event_time(lambda r: r[1])
        keyed = timed.key_by(lambda r: r[0])
        if kind == "process":
            operator = keyed.transform_with_state(Echo, time_mode="event", late=tag)
        elif kind == "records":
            operator = keyed.window(Tumbling(1000), late=tag).records(
                lambda key, start, held: ("fired", len(held))
            )
        else:
            operator = keyed.window(Tumbling(1000), late=tag).aggregate(lambda _: 1, plus)

        def check(record: Any) -> Any:
            if breaks:
                raise ValueError("broken")
            return record

        operator.sink(on_time, name="on-time")
        operator.side_output(tag).map(check).sink(late, name="late")
        return built

    if breaks:
        with pytest.raises(UserFunctionError, match="broken"):
            run(job(True), store, config(parallelism=parallelism))
    run(job(False), store, config(parallelism=parallelism), seed=2)
    assert sorted(late.records) == sorted(records[3000:])
    counted = len(on_time.records)
    if kind != "process":
        counted = sum(record[-1] for record in on_time.records)
    assert counted == 3000


JOB = """
from tidelog import Job, Replayable, Stdout, Tumbling

def job(arguments):
    built = Job("late")
    records = [("a", n * 10) for n in range(2048)] + [("a", 1), ("a", 2)]
    timed = built.source(Replayable(records)).event_time(lambda r: r[1])
    keyed = timed.key_by(lambda r: r[0])
    windows = keyed.window(Tumbling(1000)).count()
    windows.filter(lambda _: False).sink(Stdout())
    return built
"""


def test_every_report_of_run_counts_late_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_job.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    arguments = ["run", "late_job:job", "--table", "memory"]
    plain = tidelog(*arguments, "--store", tmp_path / "plain")
    assert "2 records late" in plain.stderr.splitlines()[-1]
    lines = tidelog(*arguments, "--store", tmp_path / "json", "--json").stdout.splitlines()
    result = json.loads(lines[-1])
    assert (result["event"], result["late_records"]) == ("result", 2)
    assert Counter({o["id"]: o["late_records"] for o in result["operators"]})["window"] == 2
