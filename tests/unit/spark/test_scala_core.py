"""The plug-in's decisions and its log on a directory pass their checks in Scala."""

import pytest

from tests.unit.spark.scala_checks import ScalaChecks

CHECKS = [
    "a batch is published when all its ids are durable, whoever else is silent",
    "the failure of an attempt that the commit does not name is no failure",
    "a batch waits while an executor may still have what is missing",
    "a failed upload of a named id fails the batch at once",
    "what no executor has is looked for elsewhere",
    "an executor that is gone is not waited for",
    "a batch that waited too long fails and names who is silent",
    "no facts publish a batch with an id that is not durable",
    "a full segment leaves at once",
    "a segment waits for open changelogs, but not beyond its age",
    "a segment without open changelogs leaves after the linger",
    "a segment waits for tasks of its query that have no changelog open",
    "the linger exceeds the pauses within a batch, not those between batches",
    "a long pause is forgotten with the batches that have none",
    "an end of a task that has not started changes nothing",
    "one that is larger than the limit may be in flight alone",
    "who finds no room has the waiting bytes sent and waits for them",
    "a changelog is complete when its last piece is handed over and all are stored",
    "pieces that are stored out of order keep their order",
    "a changelog that lost a piece is never complete",
    "an upload into a directory that was removed is given up, not tried again",
    "an executor tells the driver every figure that the driver sums up",
    "driver and executor have no metric of one name",
    "totals keep what executors had counted that are gone, levels do not",
    "a snapshot is put off where Spark alone would have taken it",
    "the report of a batch adds up its segments and the house-keeping",
    "a batch without uploads has no times of uploads",
    "the newest thousand reports are kept, a batch that ran again among them",
    "house-keeping is reported once, what is stored every time",
    "a small changelog is handed over whole when it is closed, once",
    "a large changelog leaves in pieces while it is written",
    "after a cancel nothing is handed over, whatever is still written or closed",
    "a hand-over that fails ends the changelog as not completed",
    "a segment is dead exactly when no batch needs it and none still can",
    "a query that is set back takes what lay behind with it",
    "a window is due when it is committed and dead when nothing in it is needed",
    "a commit file is the only index of its batch until the roll-up is stored",
    "the sweep keeps a segment with a changelog that a commit names",
    "the sweep takes a segment of attempts that lost or never were committed",
    "the sweep keeps what belongs to a batch whose index it does not know",
    "every store snapshots once in every period",
    "no batch has two snapshots more than another",
    "Spark's own rule then says the same",
    "a query with slow batches keeps Spark's period, a fast one doubles it",
    "what is due by a longer period is due by every shorter one",
    "the pace is the smoothed time between neighbouring versions",
    "only the successor of the newest own file is known not to be there",
    "changelogs with an id are known wherever the checkpoint lies",
    "commits are known by their number",
    "all other files are left alone",
    "two spellings of a directory are one checkpoint",
    "a segment is read once, ahead or by whoever needs it first",
    "what is read ahead takes at most a quarter of the room",
    "a segment that could not be read ahead is read again",
    "whatever crashes, what Spark still needs is readable and nothing else stays",
    "a batch that ran again is found by a reader that knew the first run",
    "a deleted changelog is gone for the reader that it was deleted through",
    "what a roll-up of before a set-back still says costs no changelog",
    "an id that the commit's own index contradicts is told as that",
    "damage to an index line asks for no backup and names the line",
    "a provider that keeps its store to itself is no reason to report Spark's version",
    "an index that points to other bytes is an error, not wrong state",
    "a segment that is truncated, damaged or gone is an error that names it",
]


@pytest.fixture(scope="session")
def outcomes(scala_checks: ScalaChecks) -> dict[str, str | None]:
    """Why a check failed, or None, by the check's name."""
    return scala_checks.outcomes("core.CoreChecks")


@pytest.mark.parametrize("check", CHECKS)
def test_in_scala(outcomes: dict[str, str | None], check: str) -> None:
    assert outcomes[check] is None


def test_every_check_in_scala_is_one_of_those_above(outcomes: dict[str, str | None]) -> None:
    assert sorted(outcomes) == sorted(CHECKS)
