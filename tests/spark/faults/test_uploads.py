"""The store under a checkpoint refuses, forgets or cuts what it is given."""

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.support.census import assert_complete
from tests.spark.support.faults import ROLL_UP, SEGMENT, Faults, commit
from tests.spark.support.place import Place
from tests.spark.support.running import add, finish
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.query import events, single
from tests.support.depth import more_in_depth, one_by_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.plugin_only

BATCHES = TOTALS.batches()[: more_in_depth(6, None)]
LOST_ANSWERS = more_in_depth(1, 3)
STORED_BY = {"faulty": "put", "renaming": "rename"}
"""The operation by which an object appears, by the scheme of the checkpoint."""


def checkpoint(place: Place, scheme: str = "faulty") -> str:
    return f"{scheme}://{place.checkpoint}"


def assert_right(place: Place) -> None:
    assert TOTALS.result(place.rows()) == TOTALS.expected(BATCHES)
    assert_complete(place.checkpoint)


def test_what_fails_or_whose_answer_is_lost_is_stored_again_and_counts_once(
    spark: "SparkSession", faulty: Faults, place: Place
) -> None:
    add(place, BATCHES)
    failure = faulty.add("fail", "put", SEGMENT, times=2)
    loss = faulty.add("lose-answer", "put", SEGMENT, times=LOST_ANSWERS)
    of_a_commit = faulty.add("lose-answer", "put", commit(4), times=1)
    finish(spark, TOTALS, place, checkpoint(place))
    assert (failure.fired(), loss.fired(), of_a_commit.fired()) == (2, LOST_ANSWERS, 1)
    assert_right(place)


@one_by_one(action=["fail", "full"], scheme=list(STORED_BY))
def test_a_batch_that_cannot_be_stored_is_not_committed_and_runs_again(
    spark: "SparkSession", faulty: Faults, place: Place, scheme: str, action: str
) -> None:
    add(place, BATCHES[:3])
    finish(spark, TOTALS, place, checkpoint(place, scheme))
    add(place, BATCHES[3:])
    refusal = faulty.add(action, STORED_BY[scheme], SEGMENT)
    with pytest.raises(StreamingQueryException, match="commit of batch 3"):
        finish(spark, TOTALS, place, checkpoint(place, scheme))
    assert refusal.fired() > 1
    assert place.committed()[-1] == 2
    faulty.clear()
    finish(spark, TOTALS, place, checkpoint(place, scheme))
    assert_right(place)


@pytest.mark.parametrize("scheme", more_in_depth(["renaming"], [*STORED_BY]))
def test_a_commit_that_fails_is_written_by_the_batch_that_runs_again(
    spark: "SparkSession", faulty: Faults, place: Place, scheme: str
) -> None:
    add(place, BATCHES)
    faulty.add("fail", STORED_BY[scheme], commit(4), times=1)
    with pytest.raises(StreamingQueryException):
        finish(spark, TOTALS, place, checkpoint(place, scheme))
    assert place.committed()[-1] == 3
    finish(spark, TOTALS, place, checkpoint(place, scheme))
    assert_right(place)


def test_house_keeping_that_fails_is_made_up_for(
    spark: "SparkSession", faulty: Faults, place: Place
) -> None:
    batches = single(events(seed=1, batches=24, per_batch=10))
    add(place, batches[:12])
    roll_up = faulty.add("fail", "put", ROLL_UP, times=2)
    removal = faulty.add("fail", "delete", SEGMENT, times=3)
    finish(spark, TOTALS, place, checkpoint(place))
    add(place, batches[12:])
    finish(spark, TOTALS, place, checkpoint(place))
    assert roll_up.fired() == 2
    assert removal.fired() == 3
    assert TOTALS.result(place.rows()) == TOTALS.expected(batches)
    assert_complete(place.checkpoint)


def test_a_segment_that_the_store_cuts_off_is_a_named_error_for_the_next_run(
    spark: "SparkSession", faulty: Faults, place: Place
) -> None:
    add(place, BATCHES[:4])
    cut = faulty.add("cut", "content", SEGMENT)
    finish(spark, TOTALS, place, checkpoint(place))
    assert cut.fired()
    faulty.clear()
    before = place.rows()
    add(place, BATCHES[4:])
    with pytest.raises(StreamingQueryException, match=r"segment faulty:.*\.seg"):
        finish(spark, TOTALS, place, checkpoint(place))
    assert place.rows() == before, "nothing may come of state that cannot be read"
