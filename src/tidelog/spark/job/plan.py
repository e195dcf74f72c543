"""A job's graph as stages of a query, and what of a graph Spark has no equivalent for. Pure.

Invariants: what cannot run on Spark as it runs embedded is refused here, before anything starts,
with the reason and another way; every edge to a keyed operator or a sink is one branch.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from tidelog.errors import ConfigError
from tidelog.runtime.graph import Job
from tidelog.runtime.node import Edge, Node
from tidelog.runtime.operators.event_time import AssignEventTime, EventTimeOptions
from tidelog.spark.operators.input_times import TimeInput
from tidelog.spark.operators.layout import Descriptions
from tidelog.spark.operators.stage import Branch, Route, StagePlan, Step
from tidelog.state.meaning import TIME_MODE

OUTPUT: Final = "output"
"""The target of the branch by which the records of a single node leave."""


class HasSplits(Protocol):
    """A source as a query reads it."""

    @property
    def splits(self) -> Mapping[str, int | None]:
        """Splits that event time waits for, and the greatest event time that was read there."""


class Input(NamedTuple):
    """Records that a keyed operator or a sink gets of a stage."""

    head: Node
    edge: Edge
    branch: int


class _Exchange(NamedTuple):
    """An edge, of which one object may lead to several consumers."""

    consumer: Node
    edge: Edge
    branch: int


class JobPlan:
    """The stages of a job that lead to its sinks or, with `until`, to the node of this name."""

    def __init__(self, job: Job, until: str | None = None) -> None:
        """Raises ConfigError for what Spark has no equivalent for."""
        self.job = job
        self._until = self._node(until) if until is not None else None
        needed = _before(self._until) if self._until is not None else set(map(id, job.nodes))
        self.nodes = [node for node in job.nodes if id(node) in needed]
        """In the order of the graph: a node comes after those before it."""
        self._edges: list[_Exchange] = []
        for node in self.nodes:
            for edge in node.inputs:
                self._edges.append(_Exchange(node, edge, len(self._edges) + 1))
        for node in self.nodes:
            _check(node)
        self._event_time = self._with_event_time()

    @property
    def sources(self) -> list[Node]:
        return [node for node in self.nodes if node.source is not None]

    @property
    def operators(self) -> list[Node]:
        """The keyed operators, each after those before it."""
        return [node for node in self.nodes if node.keyed]

    @property
    def sinks(self) -> list[Node]:
        return [node for node in self.nodes if node.sink is not None]

    def ticks(self, node: Node) -> bool:
        """Whether a keyed operator has timers of processing time."""
        return node.meaning.get(TIME_MODE) == "processing"

    @property
    def needs_clock(self) -> bool:
        """Whether something happens at a processing time, also in batches without input."""
        options = [_event_time_options(node) for node in self.nodes if node.makes_watermarks]
        idle = any(one.idle_after_ms is not None for one in options)
        return idle or any(map(self.ticks, self.operators))

    def time_inputs(self, node: Node, sources: Mapping[str, HasSplits]) -> tuple[TimeInput, ...]:
        """The inputs of a keyed operator that have watermarks; none: it needs no event time."""
        if id(node) not in self._event_time:
            return ()
        inputs: dict[str, TimeInput] = {}
        for head, edge, _ in self.inputs(node):
            maker = self._maker(head, edge.node)
            name = self._input_name(head, maker)
            if name is None:
                continue
            options = EventTimeOptions() if maker is None else _event_time_options(maker)
            splits = sources[head.id].splits if head.id in sources else {}
            delays = options.max_delay_ms, options.idle_after_ms
            inputs[name] = TimeInput(name, *delays, splits)
        return tuple(inputs.values())

    def inputs(self, node: Node) -> list[Input]:
        """Where the records of a keyed operator or a sink come from."""
        inputs: list[Input] = []
        for consumer, edge, branch in self._edges:
            if consumer is node:
                inputs += [Input(head, edge, branch) for head in self._heads(edge.node)]
        return inputs

    def outputs(self) -> list[Node]:
        """The heads of the stages from which records leave the query."""
        ends = [] if self._until is None else [self._until]
        for node in self.sinks:
            ends += [edge.node for edge in node.inputs]
        heads: dict[int, Node] = {}
        for end in ends:
            heads |= {id(head): head for head in self._heads(end)}
        return list(heads.values())

    def branches_of(self, sink: Node) -> list[int]:
        return [branch for consumer, _, branch in self._edges if consumer is sink]

    def stage(
        self, head: Node, targets: Iterable[Node | None], descriptions: Descriptions
    ) -> StagePlan:
        """The stage of a source or a keyed operator, as far as records go to these keyed operators
        and, None, out of the query.
        """
        target_ids = {id(target) for target in targets if target is not None}
        leaves = any(target is None for target in targets)
        members = self._members(head)
        routes: dict[str, list[Route]] = {node.id: [] for node in (head, *members)}
        for exchange in self._edges:
            consumer, edge, _ = exchange
            if edge.node.id not in routes:
                continue
            if any(consumer is member for member in members):
                routes[edge.node.id].append(Route(edge.tag, consumer.id))
            elif id(consumer) in target_ids or (consumer.sink is not None and leaves):
                branch = self._branch(head, exchange, descriptions)
                routes[edge.node.id].append(Route(edge.tag, branch))
        if self._until is not None and leaves and self._until.id in routes:
            routes[self._until.id].append(Route(None, Branch(0, OUTPUT)))
        steps = [Step(node.id, node.operator) for node in members if node.operator is not None]
        tuples = {name: tuple(routes_of) for name, routes_of in routes.items()}
        return StagePlan(head.id, tuple(steps), tuples, self.job.record_types)

    def _branch(self, head: Node, exchange: _Exchange, descriptions: Descriptions) -> Branch:
        consumer, edge, number = exchange
        if not consumer.keyed:
            return Branch(number, consumer.id)
        description = descriptions[consumer.id]
        maker = self._maker(head, edge.node)
        has_time = id(consumer) in self._event_time
        return Branch(
            number,
            consumer.id,
            edge.key_of,
            edge.key_types,
            description.key_types,
            edge.side,
            description.key_groups,
            self._input_name(head, maker) if has_time else None,
            None if maker is None else maker.id,
        )

    def _node(self, name: str) -> Node:
        for node in self.job.nodes:
            if node.id == name:
                return node
        names = [node.id for node in self.job.nodes if node.operator is not None]
        raise ConfigError(
            f"operator {name!r}",
            expected=f"one of job {self.job.name!r}: {', '.join(names)}",
            found="none of this name",
            action="correct the name",
        )

    def _heads(self, node: Node) -> list[Node]:
        """The heads of the stages that a node is in."""
        if _is_head(node):
            return [node]
        heads: dict[int, Node] = {}
        for edge in node.inputs:
            heads |= {id(head): head for head in self._heads(edge.node)}
        return list(heads.values())

    def _members(self, head: Node) -> list[Node]:
        """The nodes without state of a stage, in the order of the graph."""
        ids = {id(head)}
        members: list[Node] = []
        for node in self.nodes:
            if _is_head(node) or node.sink is not None:
                continue
            if any(id(edge.node) in ids for edge in node.inputs):
                ids.add(id(node))
                members.append(node)
        return members

    def _maker(self, head: Node, node: Node) -> Node | None:
        """The last node of a stage, up to this one, that makes watermarks of what the head has."""
        if _is_head(node):
            return None
        if node.makes_watermarks:
            return node if head in self._heads(node) else None
        makers = (self._maker(head, edge.node) for edge in node.inputs)
        return next((maker for maker in makers if maker is not None), None)

    def _input_name(self, head: Node, maker: Node | None) -> str | None:
        """What a keyed operator calls the watermarks of an input, in its state, too; None: the
        input has none, as a table without event time.
        """
        if maker is not None:
            return f"{head.id}/{maker.id}"
        passes_on = head.keyed and head.has_event_time and id(head) in self._event_time
        return head.id if passes_on else None

    def _with_event_time(self) -> set[int]:
        """The keyed operators with event time: those that need it, or pass it on to such."""
        wanting: set[int] = set()
        for node in reversed(self.operators):
            following = [one for one in self.operators if id(one) in wanting]
            passes_on = any(self._passes_time(node, consumer) for consumer in following)
            if node.needs_event_time or passes_on:
                wanting.add(id(node))
        return wanting

    def _passes_time(self, node: Node, consumer: Node) -> bool:
        """Whether a keyed operator gets the watermarks of another one."""
        edges = [edge for head, edge, _ in self.inputs(consumer) if head is node]
        return any(self._maker(node, edge.node) is None for edge in edges)


def refused(what: str, expected: str, found: str, action: str) -> ConfigError:
    """The error of what a query cannot have."""
    return ConfigError(f"{what} on Spark", expected=expected, found=found, action=action)


def _check(node: Node) -> None:
    """Raises ConfigError where a node has no equivalent."""
    what = f"operator {node.id!r}"
    if node.caller is not None:
        raise refused(what, "a job that runs by itself", "a program's own loop", "run it embedded")
    if any(edge.routing == "broadcast" for edge in node.inputs):
        raise refused(
            what,
            "records that go to one task each",
            "a broadcast: Spark has no state that all tasks of an operator share",
            "enrich by key: stream.key_by(...).enrich(rules.key_by(...)), or read rules that do "
            "not change where the job is defined",
        )
    if node.keyed and node.operator is not None and node.operator().emits_at_end:
        raise refused(
            what,
            "an operator that emits while data comes",
            "values at the end of the data, which a query does not have",
            "pass emit_updates=True, or use a window",
        )


def _event_time_options(maker: Node) -> EventTimeOptions:
    """How a node makes watermarks."""
    assert maker.operator is not None
    operator = maker.operator()
    assert isinstance(operator, AssignEventTime), "what makes watermarks is one"
    return operator.options


def _before(node: Node) -> set[int]:
    """The ids of a node and of all before it."""
    return {id(node)}.union(*(_before(edge.node) for edge in node.inputs))


def _is_head(node: Node) -> bool:
    return node.keyed or node.source is not None
