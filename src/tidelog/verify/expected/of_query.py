"""A state of a Spark query against the truth: read by Spark's own state data source.

Invariant: nothing here knows how state is stored; what is compared is what Spark itself reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidelog.effects import Effects
from tidelog.errors import ConfigError
from tidelog.spark.checkpoint.checkpoint import OFFSETS
from tidelog.spark.checkpoint.commits import read_offsets
from tidelog.spark.session import translated
from tidelog.storage.port import ObjectStore
from tidelog.verify.engines import COMMAND
from tidelog.verify.expected.comparison import TruthResult, compare, expected_pairs
from tidelog.verify.expected.function import Expected, Request
from tidelog.verify.expected.values import Shape, key_text

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

_DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class QueryTruth:
    """Compares a state of the query whose checkpoint is at `location`, as Spark writes it."""

    store: ObjectStore
    effects: Effects
    session: "SparkSession"
    location: str
    """The URL as Hadoop takes it: s3a://, where tidelog has s3://."""
    question: Expected

    async def compare(self, batch: int) -> TruthResult:
        """Compare the state after a batch.

        Raises ConfigError when operator or state is not clear, UserFunctionError, RestoreError
        when a job of Spark fails.
        """
        run = self.effects.offload.run
        operator, state, options = await run(self._chosen)
        asked = Request(
            url=self.store.url,
            checkpoint=batch,
            operator=operator,
            state=state,
            positions=await self._offsets(batch),
            spark=self.session,
        )
        answer = await run(self.question.function, asked)
        return await run(self._compare, asked, options, answer)

    def _compare(self, asked: Request, options: Mapping[str, str], answer: Any) -> TruthResult:
        state, shape = self._state(asked, options)
        expected = expected_pairs(self.session, answer, shape, self.question)
        place = asked.checkpoint, asked.operator, asked.state
        return compare(self.session, state, expected, place)

    def _state(
        self, asked: Request, options: Mapping[str, str]
    ) -> "tuple[RDD[tuple[str, str]], Shape]":
        where = {"batchId": asked.checkpoint, "operatorId": asked.operator, **options}
        frame = self._read("statestore", **where)
        if "value" not in frame.columns:
            raise ConfigError(
                f"state {asked.state!r} of operator {asked.operator}",
                expected="one value per key",
                found=f"columns {', '.join(frame.columns)}",
                action="compare it in Spark, with spark.read.format('statestore')",
            )
        shape = Shape("value", _fields(frame, "value"))
        rows = frame.select("key", "value").rdd
        return rows.map(lambda row: (key_text(row.key), shape.text(row.value))), shape

    def _chosen(self) -> tuple[str, str, dict[str, str]]:
        """Operator, state, and how to ask for it; raises ConfigError when they are not clear."""
        rows = self._read("state-metadata").select("operatorId", "stateStoreName").collect()
        operators = sorted({str(row.operatorId) for row in rows})
        wanted = self.question.operator
        operator = operators[0] if wanted is None and len(operators) == 1 else wanted
        if operator not in operators:
            raise _unclear("operator", wanted, operators)
        stores = sorted({row.stateStoreName for row in rows if str(row.operatorId) == operator})
        state = self.question.state or _DEFAULT
        if state not in stores and self.question.state is None:
            raise _unclear("state", None, stores)
        if state == _DEFAULT:
            return operator, state, {}
        # What is no store of its own is a variable of transformWithState.
        return operator, state, {"storeName" if state in stores else "stateVarName": state}

    def _read(self, source: str, **options: Any) -> "DataFrame":
        with translated(COMMAND):
            return self.session.read.format(source).options(**options).load(self.location)

    async def _offsets(self, batch: int) -> Mapping[str, Any]:
        """The offsets of every source at the end of a batch, as Spark writes them."""
        return read_offsets(await self.store.get(f"{OFFSETS}{batch}")).sources


def _unclear(what: str, found: str | None, known: list[str]) -> ConfigError:
    return ConfigError(
        f"--against without --{what}" if found is None else f"--{what} {found}",
        expected=f"one of {', '.join(known)}",
        found="none" if found is None else "none of that name",
        action=f"name it with --{what}",
    )


def _fields(frame: "DataFrame", column: str) -> tuple[str, ...]:
    kind: Any = frame.schema[column].dataType
    return tuple(getattr(kind, "names", ()))
