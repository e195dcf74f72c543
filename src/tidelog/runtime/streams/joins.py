"""What a keyed stream makes of itself and another one with the same keys.

Invariant: the two are the sides 0 and 1 of one operator, so a key has its state in one place.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from tidelog.errors import require
from tidelog.options.units import Length
from tidelog.runtime.user_code import check_plain
from tidelog.state.schema.types import declared

if TYPE_CHECKING:
    from tidelog.runtime.node import OutputTag
    from tidelog.runtime.operators.enrich import JoinRow
    from tidelog.runtime.operators.join import JoinKind
    from tidelog.runtime.operators.operator import Operator

# Most jobs have no joins: their operators are imported where a job asks for them.

K = TypeVar("K")
S = TypeVar("S")


class Joins(ABC, Generic[K, S]):
    """Joins with a keyed stream K; each gives a stream S."""

    @abstractmethod
    def _with(
        self,
        other: K,
        make: "Callable[[str | None], Operator]",
        *,
        late: "OutputTag | None",
        **fields: Any,
    ) -> S:
        """The output of an operator of both streams, which is made with the name of `late`."""

    def join(
        self,
        other: K,
        within: tuple[Length, Length] | None = None,
        *,
        window: Any = None,
        how: "JoinKind" = "inner",
        record_type: Any = None,
        migrate: Callable[[Any], Any] | None = None,
        late: "OutputTag | None" = None,
        name: str = "join",
    ) -> S:
        """Pair records of two streams that have the same key, by their event times.

        Pairs are those with lower <= other's time - this one's <= upper for `within` (lower,
        upper): ints in milliseconds, timedeltas or text such as "5m" and "-30s"; or those in one
        `window`, tumbling or sliding, for each window that holds both.

        Emits (left, right) as soon as both are there, with the later time, or with a window's last
        one. A "left" join emits (left, None) once no right record can come any more, an "outer"
        join (None, right) as well; see docs/guides/joins.md, also for what state is kept.
        `record_type` and `migrate` are for records of both sides what those of `aggregate` are for
        values. A record at or below the watermark, or all of whose windows have ended, is late:
        it is counted, and dropped or emitted as it is to the side output `late`.
        """
        from tidelog.runtime.operators.join import EMITS_ALONE, Join  # noqa: PLC0415
        from tidelog.runtime.operators.spans import join_span  # noqa: PLC0415

        require("join(..., how=...)", how, how in EMITS_ALONE, " or ".join(EMITS_ALONE))
        span = join_span(within, window, how)
        types = declared(record_type, Join.record_option, migrate, keys=False)
        return self._with(
            other,
            lambda tag: Join(span, how, tag),
            late=late,
            name=name,
            value_types=types,
            needs_event_time=True,
        )

    def enrich(
        self,
        table: K,
        join: "JoinRow",
        *,
        time: Literal["event", "processing"] = "event",
        record_type: Any = None,
        migrate: Callable[[Any], Any] | None = None,
        late: "OutputTag | None" = None,
        name: str = "enrich",
    ) -> S:
        """Join every record with the newest row of its key in `table`, another keyed stream.

        Emits `join(record, row)`, where row is None if there is none. In time "event" it is the
        newest row at the record's event time or before, and the record waits until the watermark
        is there; in time "processing" the newest that has come, and a table from sources that end
        is read as a whole before the sources of this stream begin. What is late, and the other
        arguments, are as for `join` within an interval; rows of the table are never late. Raises
        ConfigError for a function that is `async`.
        """
        from tidelog.runtime.operators.enrich import RECORD_OPTION, TIMES, EnrichAtTime, EnrichNow  # noqa: PLC0415

        check_plain(join, name)
        require("enrich(..., time=...)", time, time in TIMES, " or ".join(TIMES))

        def operator(tag: str | None) -> "Operator":
            return EnrichNow(join) if time == "processing" else EnrichAtTime(join, tag)

        types = declared(record_type, RECORD_OPTION, migrate, keys=False)
        return self._with(
            table,
            operator,
            late=late,
            name=name,
            value_types=types,
            needs_event_time=time == "event",
            reads_table_first=time == "processing",
        )
