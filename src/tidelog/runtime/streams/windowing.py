"""A keyed stream in windows: what `KeyedStream.window` returns, and that method."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from tidelog.errors import ConfigError, require
from tidelog.options.units import Length, milliseconds
from tidelog.runtime.node import OutputTag, name_of
from tidelog.runtime.operators.operator import OperatorFactory
from tidelog.runtime.streams.reductions import Keyed, Reductions
from tidelog.runtime.user_code import check_plain
from tidelog.state.meaning import REDUCTION
from tidelog.state.schema.types import declared

if TYPE_CHECKING:
    from tidelog.runtime.operators.spans import Firing
    from tidelog.runtime.operators.window_kinds import Windows

# Most jobs have no windows: their operators are imported where a job asks for them.

S = TypeVar("S")
Emit = Literal["final", "updates"]


class WindowedStream(Reductions[S]):
    """The records of each key and window; reduced to a value, or all of them to a function."""

    def __init__(
        self, add: Callable[..., S], windows: "Windows", firing: "Firing", name: str
    ) -> None:
        """`add` adds an operator."""
        self._add = add
        self._windows = windows
        self._firing = firing
        self._default_name = name

    if not TYPE_CHECKING:  # a type checker reports it itself

        def __getattr__(self, name: str) -> Any:
            what = f"a {type(self).__name__} has no {name!r}"
            if not name.startswith("_"):
                what += ": reduce the windows first, as by .count(), .sum(...) or .records(...)"
            raise AttributeError(what)

    def records(
        self,
        function: Callable[..., Any],
        *,
        record_type: Any = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> S:
        """Keep the records until the window fires.

        Emits what the function makes of (key, window start, records), for sessions of (key, start,
        end, records), and for count windows of (key, records). Records come by slice, the oldest
        first, and in a slice in the order in which they came; a session has slices of its gap.
        `record_type` and `migrate` are for a record what those of `aggregate` are for a value; in
        count windows they are for the list of records. Raises ConfigError for a function that is
        `async`.
        """
        check_plain(function, self._default_name or "records")
        types = declared(record_type, "records(..., record_type=...)", migrate, keys=False)
        operator, state = self._windows.records(function, self._firing)
        fields = {"value_types": types, "state": state, "meaning": {REDUCTION: "records"}}
        return self._add(self._default_name, operator, keyed=True, **fields)

    def _combining(
        self, value_of: Callable[[Any], Any], combine: Callable[[Any, Any], Any], *, updates: bool
    ) -> Keyed:
        firing = replace(self._firing, updates=updates or self._firing.updates)
        return self._windows.aggregate(value_of, combine, firing)

    def _then(self, name: str, operator: OperatorFactory, **fields: Any) -> S:
        return self._add(name, operator, **fields)


class Windowing(Reductions[S]):
    """The methods of a keyed stream that reduce its records, or put them into windows."""

    @overload
    def window(
        self,
        size_ms: int,
        slide_ms: int | None = None,
        *,
        value_of: Callable[[Any], Any],
        combine: Callable[[Any, Any], Any],
        value_type: Any = None,
        migrate: Callable[[Any], Any] | None = None,
        late: OutputTag | None = None,
        name: str = "window",
    ) -> S: ...

    @overload
    def window(
        self,
        size_ms: "Windows",
        *,
        allowed_lateness: Length = 0,
        emit: Emit = "final",
        late: OutputTag | None = None,
        name: str = "window",
    ) -> "WindowedStream[S]": ...

    def window(
        self,
        size_ms: "int | Windows",
        slide_ms: int | None = None,
        *,
        value_of: Callable[[Any], Any] | None = None,
        combine: Callable[[Any, Any], Any] | None = None,
        value_type: Any = None,
        migrate: Callable[[Any], Any] | None = None,
        allowed_lateness: Length = 0,
        emit: Emit = "final",
        late: OutputTag | None = None,
        name: str = "window",
    ) -> Any:
        """Put the records of each key into windows: `Tumbling`, `Sliding`, `Session` or `Count`.

        What is returned reduces them: `.sum(...)`, `.count()`, `.records(...)` and others. A window
        is emitted when the watermark passes its end (`emit` is "final"), or after every buffer that
        has changed it ("updates"). For `allowed_lateness` after its end a window still takes
        records, and is emitted again after each buffer that has some. A record all of whose windows
        are over is late: it is counted, and dropped or, as it is, emitted to the side output
        `late`, which `side_output(late)` of the result gives.

        With milliseconds, `window(size_ms, slide_ms, value_of=..., combine=...)` is `Tumbling`, or
        `Sliding`, and `aggregate`. Sliding windows combine each value once, with those of its
        slice, and the slices of a window when it fires: oldest slice first, and in a slice in the
        order in which records came. A slice whose value is None counts as empty.
        """
        if not isinstance(size_ms, int):
            windowed = self._windowed(size_ms, allowed_lateness, emit, late, name)
            arguments = (slide_ms, value_of, combine, value_type, migrate)
            actual = "value_of=, combine= and others go to .aggregate(...) after it"
            alone = all(argument is None for argument in arguments)
            require(f"window({size_ms!r}, ...)", actual, alone, "no more")
            return windowed
        if value_of is None or combine is None:
            raise ConfigError(
                f"window({size_ms})",
                expected="value_of= and combine=",
                found="neither or one",
                action="pass both, or window(Tumbling(...)) and a function of what it returns",
            )
        windowed = self._windowed(_span(size_ms, slide_ms), allowed_lateness, emit, late, name)
        return windowed.aggregate(value_of, combine, value_type=value_type, migrate=migrate)

    def window_records(
        self,
        size_ms: int,
        slide_ms: int | None = None,
        *,
        function: Callable[[Any, int, list[Any]], Any],
        record_type: Any = None,
        migrate: Callable[[Any], Any] | None = None,
        late: OutputTag | None = None,
        name: str = "window",
    ) -> S:
        """`window(...).records(function)` of `Tumbling` or, with a slide, `Sliding` windows."""
        windowed = self._windowed(_span(size_ms, slide_ms), 0, "final", late, name)
        return windowed.records(function, record_type=record_type, migrate=migrate)

    def _windowed(
        self, windows: "Windows", lateness: Length, emit: str, late: OutputTag | None, name: str
    ) -> "WindowedStream[S]":
        from tidelog.runtime.operators.spans import Firing  # noqa: PLC0415
        from tidelog.runtime.operators.window_kinds import Windows  # noqa: PLC0415

        kinds = "Tumbling(...), Sliding(...), Session(...) or Count(...)"
        require("window(...)", repr(windows), isinstance(windows, Windows), kinds)
        require("emit= of a window", emit, emit in ("final", "updates"), "final or updates")
        lateness_ms = milliseconds("allowed_lateness= of a window", lateness)
        firing = Firing(name_of(late), lateness_ms, emit == "updates")
        add = partial(self._then, late=late, needs_event_time=windows.by_event_time)
        return WindowedStream(add, windows, firing, name)


def _span(size_ms: int, slide_ms: int | None) -> "Windows":
    from tidelog.runtime.operators.window_kinds import Sliding  # noqa: PLC0415

    return Sliding(size_ms, size_ms if slide_ms is None else slide_ms)
