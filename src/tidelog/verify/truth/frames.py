"""State and truth compared by Spark, key by key, wherever they lie.

Invariant: both sides are (key, value) as canonical text; what comes back is three counts and a few
differing keys.
"""

from typing import TYPE_CHECKING, Any, Final

from tidelog.verify.spark import failed
from tidelog.verify.truth.asking import Question, is_frame, pair, pairs
from tidelog.verify.truth.result import SHOWN, Difference, TruthResult
from tidelog.verify.truth.values import Shape

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

_SCHEMA: Final = "key string, value string"


def expected_pairs(
    session: "SparkSession", answer: Any, shape: Shape, question: Question
) -> "RDD[tuple[str, str]]":
    """The answer of a user's function; raises ConfigError when it is none."""
    name = question.name
    if is_frame(answer):
        found: RDD[tuple[str, str]] = answer.rdd.map(lambda row: pair(row, shape, name))
        return found
    return session.sparkContext.parallelize(list(pairs(answer, shape, name)))


def compare(
    session: "SparkSession",
    state: "RDD[tuple[str, str]]",
    expected: "RDD[tuple[str, str]]",
    place: tuple[int, str, str],
) -> TruthResult:
    """Compare by key; `place` is checkpoint, operator and state.

    Raises RestoreError when the job fails.
    """
    try:
        both = _joined(session, state, expected).persist()
        try:
            return _counted(both, place)
        finally:
            both.unpersist()
    except Exception as error:
        raise failed(error) from error


def _joined(
    session: "SparkSession", state: "RDD[tuple[str, str]]", expected: "RDD[tuple[str, str]]"
) -> "DataFrame":
    left = _by_key(session.createDataFrame(state, _SCHEMA), "state")
    right = _by_key(session.createDataFrame(expected, _SCHEMA), "expected")
    return left.join(right, "key", "full_outer")


def _by_key(frame: "DataFrame", name: str) -> "DataFrame":
    """One value per key; a key that comes twice has one that equals no other."""
    twice = "concat(count(value), ' values, such as ', min(value))"
    value = f"if(count(value) = 1, min(value), {twice})"
    from pyspark.sql import functions as f  # noqa: PLC0415

    return frame.groupBy("key").agg(f.expr(value).alias(name))


def _counted(both: "DataFrame", place: tuple[int, str, str]) -> TruthResult:
    differs = "not (state <=> expected)"
    keys, expected, differing = both.selectExpr(
        "count(state)", "count(expected)", f"count_if({differs})"
    ).collect()[0]
    rows = both.where(differs).orderBy("key").limit(SHOWN).collect() if differing else []
    return TruthResult(
        *place,
        keys,
        expected,
        differing,
        tuple(Difference(row.key, row.state, row.expected) for row in rows),
    )
