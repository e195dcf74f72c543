"""The job graph: what users build.

Invariant: operator ids are unique within a job and do not depend on anything but the order and
names of the calls that built it, so the same program finds its state again.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec.structs import replace

from tidelog.errors import ConfigError, require
from tidelog.options.units import Length, milliseconds
from tidelog.runtime.node import Edge, Node, OutputTag, Routing, name_of
from tidelog.runtime.operators.aggregate import Aggregate
from tidelog.runtime.operators.answers import Watched
from tidelog.runtime.operators.operator import Operator, OperatorFactory, without_event_time
from tidelog.runtime.operators.stateless import FilterRecords, FlatMap, MapBatches, MapRecords
from tidelog.runtime.sink import Sink
from tidelog.runtime.source import Source
from tidelog.runtime.streams.joins import Joins
from tidelog.runtime.streams.reductions import Keyed
from tidelog.runtime.streams.windowing import Windowing
from tidelog.runtime.user_code import check_plain
from tidelog.state.meaning import TIME_MODE, of_sides
from tidelog.state.schema.types import declared
from tidelog.storage import object_names

if TYPE_CHECKING:
    from tidelog.runtime.operators.stateless import OnRecord, OnRule
    from tidelog.runtime.tasks.caller_task import Caller
    from tidelog.state.processor import StatefulProcessor, TimeMode

# Operators that not every job has are imported where a job asks for one.


class Job:
    """A named graph of sources, operators and sinks.

    An unaligned checkpoint stores records that are on their way. `record_types` are types of theirs
    besides basic ones, dates, decimals, UUIDs, rows and a module's own named tuples, dataclasses,
    msgspec structs and enums; their constructors may run when a checkpoint is read.
    """

    def __init__(self, name: str, *, record_types: Iterable[type] = ()) -> None:
        storable = isinstance(name, str) and name.encode(errors="ignore").decode() == name
        require("the name of a job", repr(name), storable, "a text in UTF-8")
        self.name = name
        self.record_types = tuple(record_types)
        self.nodes: list[Node] = []
        self._counts: dict[str, int] = {}

    def source(
        self, source: Source, *, name: str = "source", parallelism: int | None = None
    ) -> "Stream":
        fits, expected = isinstance(source, Source), "a Source, such as TextFileSource(path)"
        require(f"the source {name!r}", repr(source), fits, expected)
        node = self._add(name, [], parallelism=parallelism, source=source)
        for other in self.nodes:
            if other.sink and other.sink.example_file:
                node.check_unread(f"output of sink {other.id!r}", other.sink.example_file)
        return Stream(self, [Edge(node, "forward")])

    def called_by(self, caller: "Caller", *, name: str, sinks: Mapping[str, Sink]) -> None:
        """The job is state by key that a program works on itself, and the sinks it writes to.

        What it emits under the name of a sink goes there.
        """
        node = self._add(
            name, [], parallelism=1, caller=caller, operator=caller.operator, keyed=True
        )
        for tag, sink in sinks.items():
            Stream(self, [Edge(node, "forward", tag=tag)]).sink(sink, name=tag)

    def check_unread(self, what: str, example: Path) -> None:
        """Raises ConfigError when a source would read files such as this one, which is the job's
        own: after a restart at the latest.
        """
        for node in self.nodes:
            node.check_unread(what, example)

    def has(self, part: Literal["source", "sink", "caller"]) -> bool:
        return any(getattr(node, part) for node in self.nodes)

    def _add(self, name: str, inputs: list[Edge], **fields: Any) -> Node:
        object_names.check_operator(name)
        parallelism = fields.get("parallelism")
        valid = isinstance(parallelism, int | None)
        require(f"parallelism= of {name}", repr(parallelism), valid, "an int")
        for edge in inputs if fields.get("needs_event_time") else ():
            if not (edge.node.has_event_time or (edge.side and fields.get("reads_table_first"))):
                raise without_event_time(f"operator {name!r}", f"the stream of {edge.node.id!r}")
        count = self._counts[name] = self._counts.get(name, 0) + 1
        node = Node(name if count == 1 else f"{name}-{count}", inputs, **fields)
        if any(other.id == node.id for other in self.nodes):
            raise ConfigError(
                f"operator name {node.id!r}",
                expected="a name no other operator of the job has",
                found="two of them",
                action="pass another name=",
            )
        self.nodes.append(node)
        return node


class Stream:
    def __init__(self, job: Job, edges: list[Edge]) -> None:
        self._job = job
        self._edges = edges

    if not TYPE_CHECKING:  # a type checker says so itself

        def __getattr__(self, name: str) -> Any:
            what = f"a {type(self).__name__} has no {name!r}"
            if not name.startswith("_") and hasattr(KeyedStream, name):
                what += f": call key_by first, as in .key_by(lambda row: row.user).{name}(...)"
            raise AttributeError(what)

    def map(self, function: Callable[[Any], Any], *, name: str = "map") -> "Stream":
        """Apply a function to every record; raises ConfigError for one that is `async`."""
        check_plain(function, name)
        return self._then(name, partial(MapRecords, Watched(function)))

    def filter(self, predicate: Callable[[Any], bool], *, name: str = "filter") -> "Stream":
        """Keep the records a predicate holds for; raises ConfigError for one that is `async`."""
        check_plain(predicate, name)
        return self._then(name, partial(FilterRecords, Watched(predicate)))

    def flat_map(
        self, function: Callable[[Any], Iterable[Any]], *, name: str = "flat-map"
    ) -> "Stream":
        """Replace every record by any number of records."""
        check_plain(function, name, many=True)
        return self._then(name, lambda: FlatMap(function))

    def map_batches(
        self, function: Callable[[list[Any]], Iterable[Any]], *, name: str = "map-batches"
    ) -> "Stream":
        """Apply a function to whole buffers of records (fast path; buffers may be of any size)."""
        check_plain(function, name, many=True)
        return self._then(name, lambda: MapBatches(function))

    def event_time(
        self,
        time_of: Callable[[Any], int],
        *,
        max_delay_ms: Length = 0,
        idle_after_ms: Length | None = None,
        max_ahead_ms: Length = 60_000,
        name: str = "event-time",
    ) -> "Stream":
        """Assign event times (milliseconds since 1970) and make watermarks of them.

        A length of time is milliseconds, a `timedelta` or a text such as `30s` or `1m`.
        Each split of the source has a watermark of its own, `max_delay_ms` below the greatest time
        read there; event time is as far as the least of the splits that are not read to their
        end. A split that gave no records for `idle_after_ms` holds event time back no longer; one
        that is more than `max_ahead_ms` ahead of another with records to read waits for it. See
        docs/guides/event-time.md, also for `event_time` after keyed operators.
        """
        from tidelog.runtime.operators.event_time import AssignEventTime, EventTimeOptions  # noqa: PLC0415

        check_plain(time_of, name)
        options = EventTimeOptions.of(max_delay_ms, idle_after_ms, max_ahead_ms)
        operator = partial(AssignEventTime, time_of, options, set())  # one set for all subtasks
        return self._then(name, operator, makes_watermarks=True)

    def rebalance(self) -> "Stream":
        """Spread buffers evenly over the next operator's subtasks, as many as the job has.

        Records that one subtask emits may overtake each other here.
        """
        return Stream(self._job, self._edges_along("rebalance"))

    def broadcast(self) -> "Stream":
        """Send every record to all of the next operator's subtasks."""
        return Stream(self._job, self._edges_along("broadcast"))

    def with_broadcast(
        self,
        rules: "Stream",
        *,
        on_rule: "OnRule",
        on_record: "OnRecord",
        name: str = "with-broadcast",
    ) -> "Stream":
        """Handle every record with all records of the stream `rules` so far.

        `on_rule(rule, known)` changes the map of what is known; every subtask calls it with every
        rule. `on_record(record, known)` reads it and returns output records. The map is
        part of every checkpoint; keep it small. The rules of one subtask of `rules`
        come in its order, also where it has another parallelism; rules and records in any. Raises
        ConfigError for functions that are `async`.
        """
        from tidelog.runtime.operators.stateless import Rules, WithBroadcast  # noqa: PLC0415

        check_plain(on_rule, name)
        check_plain(on_record, name, many=True)
        self._check_job(rules)
        silent = tuple(rules._then(f"{name}-rules", Rules).broadcast()._edges)
        both = Stream(self._job, [*self._edges, *silent])
        return both._then(name, lambda: WithBroadcast(on_rule, on_record), silent=silent)

    def union(self, *streams: "Stream") -> "Stream":
        """Merge streams; no order between them."""
        self._check_job(*streams)
        edges = chain.from_iterable(stream._edges for stream in (self, *streams))
        return Stream(self._job, list(edges))

    def key_by(
        self,
        key_of: Callable[[Any], Any],
        *,
        key_type: Any = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> "KeyedStream":
        """Partition by a key: a str, int (64 bits), bool, bytes, float, None or a tuple of these.

        Floats are compared as in Spark: 0.0 and -0.0 are one key, and so are all NaNs. Keys of
        different types are different, also 1, 1.0 and True.

        After a restart a key of a type that the checkpoint does not have is refused. `key_type`,
        an annotation such as `str | tuple[str, int]`, declares all that there may be; `migrate`
        makes one of these of a stored key that is not.
        """
        check_plain(key_of, "key_by")
        types = declared(key_type, "key_by(..., key_type=...)", migrate, keys=True)
        return KeyedStream(self._job, self._edges_along("key", key_of=key_of, key_types=types))

    def side_output(self, tag: OutputTag) -> "Stream":
        """The stream that the operator before this emits under a tag; raises ConfigError.

        Its records have their event times, and event time there is that of the operator.
        """
        name = name_of(tag)
        for edge in self._edges:
            if edge.node.side_output != name:
                raise ConfigError(
                    f"side output {name!r} of operator {edge.node.id!r}",
                    expected="an operator that was given this tag",
                    found=f"the tag {edge.node.side_output!r}",
                    action="pass late= to the operator, and call side_output on what it returns",
                )
        return Stream(self._job, [Edge(edge.node, "forward", tag=name) for edge in self._edges])

    def sink(self, sink: Sink, *, name: str = "sink", parallelism: int | None = None) -> None:
        """End the stream in a sink; without a parallelism it has that of the stream.

        With fewer or more subtasks than the stream has, what one of those emits goes to one subtask
        of the sink, in its order; `rebalance()` before it spreads the records instead. Raises
        ConfigError for a directory that another sink of the job writes to.
        """
        fits = isinstance(sink, Sink)
        require(f"the sink {name!r}", repr(sink), fits, "a Sink, such as FileSink(directory)")
        for node in self._job.nodes:
            if (
                sink.output_path is not None
                and node.sink is not None
                and node.sink.output_path == sink.output_path
            ):
                raise ConfigError(
                    f"output {sink.output_path} of sink {name!r}",
                    expected="one that no other sink of the job has",
                    found=f"that of sink {node.id!r}",
                    action="give every sink an output of its own, or make one stream of several by "
                    "`union`",
                )
        node = self._job._add(name, self._edges, parallelism=parallelism, sink=sink)
        if sink.example_file:
            self._job.check_unread(f"output of sink {node.id!r}", sink.example_file)

    def _edges_along(self, routing: Routing, **fields: Any) -> list[Edge]:
        return [Edge(edge.node, routing, tag=edge.tag, **fields) for edge in self._edges]

    def _check_job(self, *streams: "Stream") -> None:
        for other in streams:
            is_stream = isinstance(other, Stream)
            require("a stream beside this one", repr(other), is_stream, "a Stream, not in a list")
            if other._job is not self._job:
                raise ConfigError(
                    f"a stream of job {other._job.name!r}",
                    expected=f"streams of one Job object, here of job {self._job.name!r}",
                    found="another object",
                    action="make all streams that meet from the same Job",
                )

    def _then(
        self, name: str, operator: OperatorFactory, *, late: OutputTag | None = None, **fields: Any
    ) -> "Stream":
        node = self._job._add(
            name, self._edges, operator=operator, side_output=name_of(late), **fields
        )
        return Stream(self._job, [Edge(node, "forward")])


class KeyedStream(Stream, Windowing[Stream], Joins["KeyedStream", Stream]):
    """A stream partitioned by key; operators here have state per key."""

    def deduplicate(
        self,
        id_of: Callable[[Any], Any] | None = None,
        *,
        ttl: Length,
        id_type: Any = None,
        name: str = "deduplicate",
    ) -> Stream:
        """Let the first record of each key and id pass; without `id_of` that of each key.

        An id, which is of a type of keys, is forgotten when its first record was handled `ttl` ago:
        milliseconds, a `timedelta` or a text such as `10m`. After a restart an id of a type that
        the checkpoint does not have is refused; `id_type`, an annotation such as `int | str`,
        declares all that there may be.
        """
        from tidelog.runtime.operators.deduplicate import ID_OPTION, Deduplicate  # noqa: PLC0415

        ttl_ms = milliseconds("ttl= of deduplicate", ttl)
        require("ttl= of deduplicate", repr(ttl), ttl_ms > 0, "more than 0")
        types = declared(id_type, ID_OPTION, None, keys=True)
        operator: OperatorFactory = lambda: Deduplicate(id_of, ttl_ms)  # noqa: E731
        return self._then(name, operator, keyed=True, value_types=types)

    def transform_with_state(
        self,
        processor: "Callable[[], StatefulProcessor]",
        *,
        time_mode: "TimeMode" = "none",
        late: OutputTag | None = None,
        initial_state: "KeyedStream | None" = None,
        name: str = "process",
    ) -> Stream:
        """Run a `StatefulProcessor` (a class or factory; one instance per subtask).

        In time mode "event", records at or below the watermark go to the side output `late`, or are
        dropped; they are counted. Records of `initial_state`, whose sources end, go to
        `handleInitialState` before all others.
        """
        from tidelog.runtime.operators.process import Process  # noqa: PLC0415
        from tidelog.state.processor import TimeMode  # noqa: PLC0415

        expected = "a class, or a function that makes an object of it"
        require(f"the processor of {name}", repr(processor), callable(processor), expected)
        missing = sorted(getattr(processor, "__abstractmethods__", ()))
        shown = f"none in {getattr(processor, '__name__', processor)}"
        require(f"the processor of {name}", shown, not missing, f"methods {', '.join(missing)}")
        modes = get_args(TimeMode)
        require(f"time_mode= of {name}", repr(time_mode), time_mode in modes, ", ".join(modes))
        stream = self if initial_state is None else self._beside(initial_state, name)
        return stream._then(
            name,
            lambda: Process(processor(), time_mode, name_of(late)),
            keyed=True,
            late=late,
            needs_event_time=time_mode == "event",
            reads_table_first=initial_state is not None,
            meaning={TIME_MODE: time_mode},
        )

    def _combining(
        self, value_of: Callable[[Any], Any], combine: Callable[[Any, Any], Any], *, updates: bool
    ) -> Keyed:
        return lambda: Aggregate(value_of, combine, emit_updates=updates), Aggregate.state

    def _with(
        self,
        other: "KeyedStream",
        make: Callable[[str | None], Operator],
        *,
        late: OutputTag | None,
        **fields: Any,
    ) -> Stream:
        both = self._beside(other, fields["name"])
        meaning = of_sides(_origins(self._edges), _origins(other._edges))
        return both._then(
            operator=lambda: make(name_of(late)), keyed=True, late=late, meaning=meaning, **fields
        )

    def _beside(self, other: "KeyedStream", name: str) -> "KeyedStream":
        """Both streams, `other` as side 1, for an operator of this name."""
        self._check_job(other)
        keyed = all(edge.routing == "key" for edge in other._edges)
        what = f"the other stream of operator {name!r}"
        require(what, type(other).__name__, keyed, "a stream after .key_by(...)")
        second = [replace(edge, side=1) for edge in other._edges]
        return KeyedStream(self._job, [*self._edges, *second])


def _origins(edges: list[Edge]) -> set[str]:
    """The names of all operators in front of a stream, and of its side output."""
    origins: set[str] = set()
    for edge in edges:
        origins |= edge.node.origins
        if edge.tag is not None:
            origins.add(f"{edge.node.id}/{edge.tag}")
    return origins
