"""What the rows of a query's operators mean: kept in its checkpoint, compared with the job.

Invariants: a state has one id as long as the checkpoint lasts; a job whose states do not go with
those of the checkpoint is refused before the query starts.
"""

from collections.abc import Mapping

from tidelog.checkpoint.manifest import OperatorState
from tidelog.effects import SystemClock
from tidelog.errors import ObjectNotFoundError
from tidelog.ids import KeyGroup
from tidelog.runtime.node import Node
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.spark.checkpoint.checkpoint import store_url
from tidelog.spark.job.plan import Descriptions, opened
from tidelog.spark.operators.layout import OPERATORS, OperatorDescription, QueryOperators
from tidelog.spark.source.parts import connected
from tidelog.state.backend import KeyedBackend
from tidelog.state.key_groups import KeyGroupRange
from tidelog.state.log import NoLog
from tidelog.state.meaning import check_meaning, stored_meaning
from tidelog.state.registry import StateRegistry, known_keys
from tidelog.storage.document import open_document, seal_document
from tidelog.storage.open import PLAIN, StoreAccess
from tidelog.table.memory import MemoryTable

KEY_GROUPS = 128
"""Of an operator that begins without state."""


def stored_descriptions(checkpoint: str, access: StoreAccess = PLAIN) -> Descriptions:
    """Those that the checkpoint of a query has; none before its first start."""
    with connected(store_url(checkpoint), access) as session:
        try:
            data = session.run(session.store.get(OPERATORS))
        except ObjectNotFoundError:
            return {}
    document = open_document(data, OPERATORS, QueryOperators)
    return {description.operator: description for description in document.operators}


def keep_descriptions(
    checkpoint: str, descriptions: Descriptions, access: StoreAccess = PLAIN
) -> None:
    """Store what the query has from now on."""
    data = seal_document(QueryOperators(tuple(descriptions.values())))
    with connected(store_url(checkpoint), access) as session:
        session.run(session.store.put(OPERATORS, data))


def described(
    node: Node, before: OperatorDescription | None, key_groups: int = KEY_GROUPS
) -> OperatorDescription:
    """What the rows of an operator mean, given what is stored of it.

    Raises StateSchemaError where the job's states do not go with stored ones.
    """
    description = before or OperatorDescription(operator=node.id, key_groups=key_groups, states=())
    state = OperatorState(
        node.id,
        description.key_groups,
        description.states,
        (),
        key_types=description.key_types,
        meaning=description.meaning,
    )
    check_meaning(state, node.meaning, ())
    keys = known_keys(node.id, state, node.key_types)
    registry = StateRegistry(node.id, description.states, keys, node.value_types)
    clock = SystemClock()
    every = KeyGroupRange(KeyGroup(0), KeyGroup(description.key_groups - 1))
    backend = KeyedBackend(
        registry,
        description.key_groups,
        every,
        MemoryTable(),
        NoLog(),
        clock.now_ms,
        clock.monotonic,
    )
    operator = opened(node)
    operator.open(OperatorContext(clock, backend, operator=node.id))
    operator.close()
    registry.check_renamed(())
    return OperatorDescription(
        operator=node.id,
        key_groups=description.key_groups,
        states=registry.infos(),
        key_types=description.key_types,
        meaning=stored_meaning(node.meaning),
        watermark=description.watermark,
        ahead=description.ahead,
        seqno=description.seqno,
    )


def describe(
    nodes: list[Node], stored: Descriptions, initial: Mapping[str, OperatorDescription]
) -> Descriptions:
    """The descriptions of all operators of a query."""
    return {node.id: described(node, stored.get(node.id) or initial.get(node.id)) for node in nodes}
