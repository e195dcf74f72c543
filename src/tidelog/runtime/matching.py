"""Does a checkpoint fit a job, and which of its state does each subtask load?

Pure, and made before anything is fenced or changed. Invariant: a subtask gets the state of the same
operator and of the key groups it owns, or the job does not start.
"""

from tidelog.checkpoint.finished import partially_finished, reopened
from tidelog.checkpoint.manifest import Checkpoint, OperatorState
from tidelog.errors import RestoreError
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Vertex
from tidelog.runtime.rechaining import rechain
from tidelog.runtime.topology import check_finished
from tidelog.state.operator_dealing import deal_operator_state
from tidelog.state.redistribute import redistribute


def match_states(
    vertices: list[Vertex], restored: Checkpoint | None, config: JobConfig
) -> dict[str, OperatorState]:
    """Stored operators by vertex, as the job's subtasks load them.

    Raises RestoreError when job and checkpoint do not fit.
    """
    if restored is None:
        return {}
    stored = {operator.id: operator for operator in restored.operators}
    wanted = {vertex.id: vertex for vertex in vertices}
    nodes = {node.id for vertex in vertices for node in vertex.nodes}
    if unknown := sorted(stored.keys() - nodes):
        raise _mismatch("operators", sorted(stored), sorted(wanted), f"give {unknown} back")
    for name, operator in stored.items():
        if operator.key_groups != config.key_groups:
            raise _mismatch(
                f"key groups of {name!r}", operator.key_groups, config.key_groups, "set it back"
            )
    check_finished(vertices, stored)
    going_on = rechain(stored, vertices)
    return {name: _dealt(operator, wanted[name], config) for name, operator in going_on.items()}


def _dealt(operator: OperatorState, vertex: Vertex, config: JobConfig) -> OperatorState:
    """The operator in the shape it has in the job."""
    table = config.table_of(keyed=vertex.head.keyed)
    dealt = redistribute(operator, vertex.parallelism, table)
    if dealt is not operator and partially_finished(operator) and vertex.head.source is None:
        dealt = reopened(dealt)
    return deal_operator_state(operator, dealt)


def _mismatch(what: str, expected: object, found: object, action: str) -> RestoreError:
    return RestoreError(
        f"{what} of the job",
        expected=f"{expected}, as the checkpoint has it",
        found=str(found),
        action=f"{action}, or start with an empty store",
    )
