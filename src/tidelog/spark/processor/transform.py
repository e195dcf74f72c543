"""`tidelog.spark.transform`: a keyed function of tidelog as a step of a streaming query.

Rows, not pandas frames: the functions take rows one by one, and a frame would make a null among
integers a float. Invariant: what cannot run on Spark as it runs embedded is refused here, before
there is a query.
"""

from collections.abc import Callable, Collection, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

from tidelog.errors import ConfigError, require
from tidelog.options.units import Length, milliseconds
from tidelog.spark.handover.begin import Origin
from tidelog.spark.handover.initial import InitialState, OperatorOrigin, from_savepoint
from tidelog.spark.handover.keys import PYTHON_TYPES, KeyColumns
from tidelog.spark.operators.layout import TIME_MODES
from tidelog.spark.processor.adapter import UNKNOWN_MS, SparkProcessor, initialized, shape_of
from tidelog.spark.processor.handle import SparkHandle
from tidelog.state.processor import StatefulProcessor, TimeMode
from tidelog.storage.open import StoreAccess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

KEY_TYPES: Final = frozenset(PYTHON_TYPES)
"""Types of key columns whose values `key_by` takes embedded."""

_NEEDED: Final = {"google.protobuf": "protobuf", "pyarrow": "pyarrow", "pandas": "pandas"}
"""Modules that Spark's transformWithState imports, and their packages."""


def transform(
    df: "DataFrame",
    processor: Callable[[], StatefulProcessor],
    *,
    key: str | Sequence[str],
    output_schema: "StructType | str",
    time_mode: TimeMode = "none",
    event_time: str | None = None,
    max_delay_ms: Length = 0,
    output_mode: Literal["append", "update"] = "append",
    initial_state: "str | DataFrame | None" = None,
    operator: str | None = None,
    checkpoint: str | None = None,
    allow_non_restored_state: Collection[str] = (),
    endpoint: str | None = None,
    encryption_key: str | None = None,
) -> "DataFrame":
    """Run a `StatefulProcessor` (a class or factory) over the rows of each key of a stream.

    `key` names columns; their values are the key that the function gets. `event_time` names a
    bigint column of milliseconds; the watermark trails its greatest value as the embedded
    `event_time(..., max_delay_ms=)` does. Without it, time mode 'event' needs a watermark that `df`
    has already. `output_mode` must be that of the query.

    With `initial_state="URL@NAME"` the query begins with the state that `operator` has in this
    savepoint of an embedded job. `checkpoint` is then the query's own `checkpointLocation`, which
    remembers what was taken over; `allow_non_restored_state` names state that may be left out. A
    data frame as `initial_state` has the key's columns and others: the function gets its rows in
    `handleInitialState`.

    What differs from the embedded runtime: docs/guides/processor.md. Raises ConfigError for what
    Spark cannot do in the same way, StateSchemaError for a schema that is none or does not go with
    a stored one, and UserFunctionError when the function's `init` fails.
    """
    check_modules()
    keys = (key,) if isinstance(key, str) else tuple(key)
    _check_stream(df, keys, time_mode)
    handle = SparkHandle(_Draft(), time_mode)
    initialized(processor, handle)
    columns = tuple(df.columns)
    initial = InitialState()
    if isinstance(initial_state, str):
        access = StoreAccess(endpoint, encryption_key)
        origin = _origin(initial_state, operator, checkpoint, allow_non_restored_state, access)
        types = dict(df.dtypes)
        stored_keys = KeyColumns(origin.operator, keys, tuple(types[name] for name in keys))
        initial = from_savepoint(df, origin, stored_keys, handle, time_mode)
    elif initial_state is not None:
        initial = InitialState(_checked(initial_state, df, keys, processor))
    if time_mode == "event" and initial.watermark is not None:
        df = _on_time(df, event_time, initial.watermark)
    timed = df if event_time is None else _timed(df, event_time, max_delay_ms, time_mode)
    schema = parsed_schema(output_schema)
    watermark = UNKNOWN_MS if initial.watermark is None else initial.watermark
    # Spark asks for the methods alone; its base class would make this package import pyspark.
    adapter: Any = SparkProcessor(
        processor, time_mode, columns, shape_of(schema), initial.typed, watermark
    )
    rows = None if initial.rows is None else initial.rows.groupBy(*map(_quoted, keys))
    return timed.groupBy(*(timed[_quoted(name)] for name in keys)).transformWithState(
        adapter, schema, output_mode.capitalize(), TIME_MODES[time_mode], rows
    )


def _quoted(column: str) -> str:
    return f"`{column}`"


def _origin(
    savepoint: str,
    operator: str | None,
    checkpoint: str | None,
    allowed: Collection[str],
    access: StoreAccess,
) -> OperatorOrigin:
    for name, value in (("operator", operator), ("checkpoint", checkpoint)):
        expected = "a name: that of the stored operator, and the query's checkpointLocation"
        require(
            f"{name}= of a transform with initial_state={savepoint!r}", value, bool(value), expected
        )
    return OperatorOrigin(
        Origin(savepoint, checkpoint or "", access), operator or "", frozenset(allowed)
    )


def _checked(
    initial_state: "DataFrame",
    df: "DataFrame",
    keys: tuple[str, ...],
    processor: Callable[[], StatefulProcessor],
) -> "DataFrame":
    """Rows of another system, for a class that takes them."""
    types = dict(df.dtypes)
    initial_types = dict(initial_state.dtypes)
    for name in keys:
        require(
            f"key {name!r} of initial_state",
            initial_types.get(name),
            initial_types.get(name) == types[name],
            f"a column of type {types[name]}, as df has it",
        )
    inherited = getattr(processor, "handleInitialState", None)
    if inherited is StatefulProcessor.handleInitialState:
        raise ConfigError(
            f"initial_state of {getattr(processor, '__name__', processor)}",
            expected="a class with handleInitialState, which gets its rows",
            found="none: the rows would go nowhere",
            action="define handleInitialState(key, initialState, timerValues)",
        )
    return initial_state


def _on_time(df: "DataFrame", column: str | None, watermark: int) -> "DataFrame":
    """Without the rows that the job would drop: Spark's own watermark begins with nothing."""
    if column is None:
        raise ConfigError(
            "event_time",
            expected="the column with the event time, as the initial state has a watermark "
            f"({watermark}) at or below which rows are late",
            found="None",
            action="pass event_time= and max_delay_ms= in place of withWatermark",
        )
    name = _quoted(column)
    return df.where(f"{name} is null or {name} > {watermark}")


class _Draft:
    """Stands for pyspark's handle and its states while the query is built: takes definitions."""

    def __init__(self, what: str = "the handle") -> None:
        self._what = what

    def getValueState(self, name: str, *definition: Any) -> "_Draft":
        """A state that nothing can be asked of."""
        return _Draft(f"state {name!r}")

    getListState = getMapState = getValueState

    def __getattr__(self, call: str) -> Any:
        raise ConfigError(
            f"{call} of {self._what} in init",
            expected="definitions of states alone: there is no key yet",
            found="a call for a key",
            action="move the call to handleInputRows",
        )


def check_modules() -> None:
    packages = [package for module, package in _NEEDED.items() if not _found(module)]
    if packages:
        raise ConfigError(
            "Python packages for transformWithState",
            expected=", ".join(_NEEDED.values()),
            found=f"no {', '.join(packages)}",
            action=f"pip install {' '.join(packages)}, here and where the executors run",
        )


def _found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def _check_stream(df: "DataFrame", keys: tuple[str, ...], time_mode: str) -> None:
    if not df.isStreaming:
        raise ConfigError(
            "the data frame",
            expected="a streaming one",
            found="one of a batch, where no time passes",
            action="read it with spark.readStream",
        )
    if time_mode not in TIME_MODES:
        raise ConfigError(
            "time_mode",
            expected=", ".join(map(repr, TIME_MODES)),
            found=repr(time_mode),
            action="pass one of them",
        )
    types = dict(df.dtypes)
    if len(types) < len(df.columns):
        raise ConfigError(
            "columns of the data frame",
            expected="a name of its own for each",
            found=", ".join(df.columns),
            action="rename or drop those that occur twice",
        )
    for name in keys or ("",):
        if types.get(name) not in KEY_TYPES:
            raise ConfigError(
                f"key {name!r}",
                expected=f"a column of type {', '.join(sorted(KEY_TYPES))}",
                found=types.get(name, f"only the columns {', '.join(types)}"),
                action="name another column, or cast it before",
            )


def _timed(df: "DataFrame", column: str, max_delay_ms: Length, time_mode: str) -> "DataFrame":
    """With a column of Spark's event time, and a watermark as the embedded runtime has it."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (heavy)

    if time_mode != "event":
        raise ConfigError(
            f"event_time={column!r}",
            expected="time_mode='event'",
            found=repr(time_mode),
            action="pass that, or leave event_time out",
        )
    types = dict(df.dtypes)
    if types.get(column) != "bigint":
        raise ConfigError(
            f"event_time={column!r}",
            expected="a bigint column of milliseconds",
            found=types.get(column, f"only the columns {', '.join(types)}"),
            action="name such a column; unix_millis(ts) makes one of a timestamp",
        )
    name = "tidelog_event_time"
    while name in types:
        name += "_"
    # Ours trails by one millisecond more: a record that is exactly as late as allowed counts.
    delay = f"{milliseconds('max_delay_ms', max_delay_ms) + 1} milliseconds"
    return df.withColumn(name, f.timestamp_millis(f"`{column}`")).withWatermark(name, delay)


def parsed_schema(schema: "StructType | str") -> "StructType":
    from pyspark.sql.types import StructType  # noqa: PLC0415  (heavy)

    parsed = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(parsed, StructType):
        raise ConfigError(
            "output_schema",
            expected="fields, like 'word string, count bigint'",
            found=repr(schema),
            action="name the columns",
        )
    return parsed
