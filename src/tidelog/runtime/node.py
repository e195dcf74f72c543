"""The nodes of the logical graph: operators, and the edges along which records flow to them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tidelog.errors import ConfigError, require
from tidelog.runtime.operators.operator import OperatorFactory
from tidelog.runtime.sink import Sink
from tidelog.runtime.source import Source
from tidelog.state.meaning import Facts
from tidelog.state.registry import Definition
from tidelog.state.schema.types import DeclaredType

if TYPE_CHECKING:
    from tidelog.runtime.tasks.caller_task import Caller

Routing = Literal["forward", "rebalance", "broadcast", "key"]


@dataclass(frozen=True, slots=True)
class OutputTag:
    """The name of a side output, as in Flink: who emits there and who reads there pass the same."""

    name: str


def name_of(tag: OutputTag | None) -> str | None:
    """Raises ConfigError for what is no tag."""
    require("a side output", repr(tag), isinstance(tag, OutputTag | None), "an OutputTag")
    return None if tag is None else tag.name


class Node(msgspec.Struct, eq=False):
    id: str
    inputs: list["Edge"] = msgspec.field(default_factory=list)
    source: Source | None = None
    sink: Sink | None = None
    operator: OperatorFactory | None = None
    caller: "Caller | None" = None
    """Works on the operator's state itself; all others of the job are sinks then."""
    parallelism: int | None = None
    """None: as the streams in front, or as the job after an exchange and for sources."""
    keyed: bool = False
    value_types: DeclaredType | None = None
    """The declared types of the values that the operator keeps by key."""
    side_output: str | None = None
    """The tag of its side output."""
    makes_watermarks: bool = False
    needs_event_time: bool = False
    reads_table_first: bool = False
    """Side 1 is a table: if it has an end, it is read to it before any record of side 0."""
    silent: tuple["Edge", ...] = ()
    """Inputs whose records never lead to output at once."""
    meaning: Facts = {}
    """What decides the meaning of its rows by key besides, as a checkpoint has it."""
    state: Definition | None = None
    """The only state that it keeps by key, where that is known before it opens."""

    @property
    def has_event_time(self) -> bool:
        """Whether records may have it here: without any `event_time` in front none has."""
        return self.makes_watermarks or any(edge.node.has_event_time for edge in self.inputs)

    @property
    def origins(self) -> set[str]:
        """The names of the operator and of all those in front of it."""
        return {self.id}.union(*(edge.node.origins for edge in self.inputs))

    def check_unread(self, what: str, example: Path) -> None:
        """Raises ConfigError when its source would read files such as this one."""
        if self.source and self.source.would_read(example):
            raise ConfigError(
                what,
                expected=f"a place that source {self.id!r} does not read",
                found=f"that it would read {example} there",
                action="choose another place, or one below a directory with a dot in front; or "
                "leave such files out with include=",
            )

    @property
    def key_types(self) -> DeclaredType | None:
        """Types of the keys that the operator keeps state for."""
        return next((edge.key_types for edge in self.inputs if edge.key_types), None)


class Edge(msgspec.Struct, frozen=True, eq=False):
    """Records of `node` flow here, partitioned like this."""

    node: Node
    routing: Routing
    key_of: Callable[[Any], Any] | None = None
    key_types: DeclaredType | None = None
    tag: str | None = None
    """The side output of `node` that this is; None: its output."""
    side: int = 0
    """Which of the two streams of a join it is."""
