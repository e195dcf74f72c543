"""How a job goes on from a checkpoint: one plan, and the passes over it. It reads and
writes nothing.

Invariant: the plan is made before anything is fenced or changed, and follows from the arguments
alone: the parent and the workers of a job make the same one.
"""

from collections.abc import Collection

from tidelog.effects import Clock
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.restore.choose import RestorePlan, Resumption
from tidelog.runtime.subtasks.vertices import Vertex, compile_job


def plan_restore(job: Job, resumption: Resumption, config: JobConfig, clock: Clock) -> RestorePlan:
    """The plan of a job that goes on, or begins.

    Raises ConfigError, UserFunctionError where a processor cannot be opened, and RestoreError,
    StateSchemaError or SerializationError when job and checkpoint do not fit, FormatVersionError
    when a newer source or sink has written what the job's ones would have to read.
    """
    resumption = resumption if config.finish_once else resumption.going_on()
    checkpoint = resumption.checkpoint
    if checkpoint is None:
        return RestorePlan(resumption, _compile(job, config))
    # A job that begins, as most do that are short, needs none of these.
    from tidelog.runtime.restore.assign import assign  # noqa: PLC0415
    from tidelog.runtime.restore.drop import drop  # noqa: PLC0415
    from tidelog.runtime.restore.fit import chain_heads, fit, rehearse  # noqa: PLC0415

    vertices = _compile(job, config, chain_heads(job, checkpoint, config))
    operators = {operator.id: operator for operator in checkpoint.operators}
    plan = RestorePlan(resumption, vertices, operators)
    plan = drop(plan, config)
    plan = fit(plan, config)
    plan = rehearse(plan, config, clock)
    return assign(plan, config)


def _compile(job: Job, config: JobConfig, chain_heads: Collection[str] = ()) -> list[Vertex]:
    """The job's vertices; raises ConfigError for one without subtasks or key groups."""
    vertices = compile_job(job, config.parallelism, chain_heads)
    for vertex in vertices:
        config.check_parallelism(f"parallelism of {vertex.id!r}", vertex.parallelism)
    return vertices
