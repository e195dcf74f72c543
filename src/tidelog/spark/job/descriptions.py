"""What the rows of a query's operators mean: kept in its checkpoint, compared with the job.

Invariants: a state has one id as long as the checkpoint lasts; a job whose states do not go with
those of the checkpoint is refused before the query starts.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.checkpoint.manifest import OperatorState
from tidelog.effects import SystemClock
from tidelog.runtime.node import Node
from tidelog.runtime.restore.fit import open_once
from tidelog.spark.operators.layout import Descriptions, InitialState, OperatorDescription
from tidelog.state.meaning import check_meaning, stored_meaning
from tidelog.state.registry import StateRegistry, known_keys

KEY_GROUPS: Final = 128
"""Of an operator that begins without state."""


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
    open_once(node, registry, description.key_groups, SystemClock())
    return msgspec.structs.replace(
        description, states=registry.infos(), meaning=stored_meaning(node.meaning)
    )


def describe(
    nodes: list[Node], stored: Descriptions, initial: Mapping[str, InitialState]
) -> Descriptions:
    """The descriptions of all operators of a query."""
    descriptions: Descriptions = {}
    for node in nodes:
        before = stored.get(node.id)
        if before is None and node.id in initial:
            before = initial[node.id].description
        descriptions[node.id] = described(node, before)
    return descriptions
