"""Commits what a checkpoint had pre-committed, for a job that goes on somewhere else.

Invariant: it does what a start of the job does before its first record: each transaction is
committed, once more if it was already, and nothing is removed.
"""

from collections.abc import Sequence
from functools import partial

from tidelog.checkpoint.manifest import Author
from tidelog.effects import Effects
from tidelog.runtime.graph import Job
from tidelog.runtime.restore.choose import RestorePlan
from tidelog.runtime.sink import Sink, SinkContext
from tidelog.runtime.tasks.sink_output import token_of
from tidelog.runtime.user_code import in_user_code


async def settle(job: Job, plan: RestorePlan, author: Author, effects: Effects) -> None:
    """Let the job's sinks commit the transactions of a plan.

    Raises what the sinks raise, in UserFunctionError where that is no TidelogError.
    """
    for vertex in plan.vertices:
        node = vertex.nodes[-1]
        if node.sink is None:
            continue
        for subtask in vertex.subtasks:
            state = plan.state_of(subtask)
            tokens = list(map(token_of, state.transactions)) if state is not None else []
            if not tokens:
                continue
            context = SinkContext(
                job.name,
                node.id,
                subtask.subtask,
                vertex.parallelism,
                author.generation,
                author.attempt,
                retained_transactions=None,
                clock=effects.clock,
            )
            commit = partial(_commit, node.sink, context, tokens)
            await effects.offload.run_to_end(in_user_code(node.id, commit))


def _commit(sink: Sink, context: SinkContext, tokens: Sequence[bytes]) -> None:
    writer = sink.open(context)
    try:
        writer.recover(tokens)
    finally:
        writer.close()
