"""The page of a Spark query's checkpoint: batches, state stores, the log, and what is wrong."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.support.cli import lay_out, tidelog
from tests.support.clock import VirtualClock
from tests.support.faults import FaultyStore
from tests.support.jobs import store_of
from tests.unit.spark.synthetic import Synthetic
from tidelog.errors import TidelogError
from tidelog.spark.plugin.check import CheckResult
from tidelog.ui.document import Document, QueryPart
from tidelog.ui.following import Follower
from tidelog.ui.query import QueryWatcher, notices


def checkpoint() -> Synthetic:
    """Thirteen batches of two state stores, with snapshots of versions 5 and 10."""
    made = Synthetic(executors=1).virtual(13).snapshots(5).snapshots(10)
    return made


def followed(store: Any, clock: VirtualClock) -> Follower:
    return Follower(store, clock, QueryWatcher(store, clock))


def document_of(objects: dict[str, bytes]) -> Document:
    return asyncio.run(followed(store_of(objects), VirtualClock(auto=False)).document())


def query_of(objects: dict[str, bytes]) -> QueryPart:
    return document_of(objects).query


def test_every_batch_is_shown_with_what_it_wrote() -> None:
    made = checkpoint()
    query = query_of(made.objects)
    assert [batch.batch for batch in query.batches] == list(range(13))
    for batch in query.batches:
        entries = made.documents[batch.batch].entries
        written = sum(piece.length for entry in entries for piece in entry.pieces)
        assert (batch.changelogs, batch.log_bytes) == (len(entries), written)
        assert (batch.segments, batch.files, batch.partitions) == (1, 0, 2)
        assert batch.started_ms == 1_700_000_000_000 + batch.batch * 1000
        assert batch.snapshots == (2 if batch.batch in (4, 9) else 0)


def test_every_state_store_is_shown_with_what_a_restart_replays() -> None:
    made = checkpoint()
    # Snapshots that no commit names count for nothing.
    made.objects["state/0/0/12_of-an-attempt.zip"] = b"zip"
    made.objects["state/0/1/14_of-the-next-batch.zip"] = b"zip"
    stores = query_of(made.objects).stores
    found = [(store.operator, store.partition, store.name) for store in stores]
    assert found == [(0, 0, "default"), (0, 1, "default")]
    for store in stores:
        behind = [
            sum(piece.length for piece in entry.pieces)
            for batch in (10, 11, 12)
            for entry in made.documents[batch].entries
            if entry.name.partition == store.partition
        ]
        assert (store.version, store.snapshot_version, store.snapshots) == (13, 10, 2)
        assert (store.replay_changelogs, store.replay_bytes) == (3, sum(behind))
        assert store.changelogs == 13


def test_an_error_that_quotes_another_one_has_no_full_stop_twice() -> None:
    """Of a message, and of a notice of the page: both are put together in one place."""
    inner = TidelogError("the disk", found="it full", action="free space")
    outer = TidelogError("the job", found=str(inner), action="start it again.")
    assert str(outer) == (
        "the job; found the disk; found it full. Next: free space (a retry is safe). "
        "Next: start it again (a retry is safe)."
    )
    check = CheckResult("segments", "warn", str(inner), "look.")
    assert list(notices([check])) == [f"segments: {inner} Next: look."]


def test_what_is_lost_is_a_problem_and_what_is_doubtful_a_notice() -> None:
    made = checkpoint().failed_attempt()
    assert "1 segment of" in document_of(made.objects).notices[0]
    gone = made.segments()[-2]
    del made.objects[gone]
    [problem, *_] = document_of(made.objects).problems
    assert gone in problem.found or "is nowhere" in problem.found
    assert problem.action


def test_a_report_is_written_of_a_checkpoint_and_says_what_is_damaged(tmp_path: Path) -> None:
    made, file = checkpoint(), tmp_path / "report.html"
    path = lay_out(tmp_path / "checkpoint", made.objects)
    # As Spark writes a local location.
    result = tidelog("report", f"file:{path}", "--output", str(file), "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["problems"] == 0
    assert "3f43980e-0a67-46ab-88dc-4b831f39a269" in file.read_text()
    (path / made.segments()[-1]).unlink()
    result = tidelog("report", path, "--output", str(file))
    assert result.exit_code == 1 and "tidelog spark check" in result.stdout


async def test_a_checkpoint_is_read_again_though_the_clock_was_set_back_by_an_hour() -> None:
    clock = VirtualClock(auto=False)
    store = FaultyStore(store_of(checkpoint().objects), (), clock)
    watching = followed(store, clock)
    await watching.document()
    assert store.calls
    clock.spend(-3600)
    store.calls.clear()
    await watching.document()
    assert store.calls
