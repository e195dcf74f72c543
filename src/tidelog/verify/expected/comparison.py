"""A state compared with the expected one, key by key: in this process, or by Spark.

Invariants: both sides are compared as canonical text, so equal values are equal whatever types
they had; memory holds the expected side and a few differences, never the state; of Spark come back
three counts and a few differing keys.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tidelog.errors import ConfigError
from tidelog.spark.session import translated
from tidelog.verify.engines import COMMAND
from tidelog.verify.expected.function import Expected, is_frame, pair, pairs
from tidelog.verify.expected.values import Shape

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

SHOWN: Final = 10
"""How many differing keys are reported."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A key and its values as JSON; None where there is none."""

    key: str
    state: str | None
    expected: str | None


@dataclass(frozen=True, slots=True)
class TruthResult:
    """A comparison; `differing` counts all keys, `differences` are up to SHOWN of them."""

    checkpoint: int
    operator: str
    state: str
    keys: int
    """Number of keys in the state."""
    expected_keys: int
    differing: int
    differences: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        """Every key has its value, and there is no other key."""
        return self.differing == 0


@dataclass(slots=True)
class Comparison:
    """Compares the keys of a state with the expected ones, as they come."""

    expected: dict[str, str]
    """Taken apart while the state's keys come in."""
    expected_keys: int = field(init=False)
    keys: int = 0
    differing: int = 0
    _differences: list[Difference] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.expected_keys = len(self.expected)

    def take(self, values: Iterable[tuple[str, str]]) -> None:
        """Compare keys of the state, each of which comes once."""
        for key, value in values:
            self.keys += 1
            expected = self.expected.pop(key, None)
            if value != expected:
                self._differ(Difference(key, value, expected))

    def finish(self, checkpoint: int, operator: str, state: str) -> TruthResult:
        """The result, once all keys of the state were taken."""
        for key, expected in sorted(self.expected.items()):
            self._differ(Difference(key, None, expected))
        return TruthResult(
            checkpoint,
            operator,
            state,
            self.keys,
            self.expected_keys,
            self.differing,
            tuple(self._differences),
        )

    def _differ(self, difference: Difference) -> None:
        self.differing += 1
        if len(self._differences) < SHOWN:
            self._differences.append(difference)


def by_key(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Expected values by key; raises ConfigError for a key that comes twice."""
    found: dict[str, str] = {}
    for key, value in pairs:
        if key in found:
            raise ConfigError(
                "the answer of --against",
                expected="every key once",
                found=f"key {key} with {found[key]} and with {value}",
                action="combine the values of a key in the function",
            )
        found[key] = value
    return found


_SCHEMA: Final = "key string, value string"


def expected_pairs(
    session: "SparkSession", answer: Any, shape: Shape, question: Expected
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
    with translated(COMMAND):
        both = _joined(session, state, expected).persist()
        try:
            return _counted(both, place)
        finally:
            both.unpersist()


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
