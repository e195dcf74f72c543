"""Plans how a job begins, or goes on from a checkpoint; a start that restores nothing is short."""

from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.restore.choose import Resumption
from tidelog.runtime.restore.plan import RestorePlan
from tidelog.runtime.subtasks.vertices import compile_job


def fit(job: Job, resumption: Resumption, config: JobConfig) -> RestorePlan:
    """Plan how a job begins, or goes on from a checkpoint.

    Raises ConfigError, and RestoreError or UnstorableError when job and checkpoint do not fit.
    """
    if resumption.checkpoint is not None:
        # A job that begins, as most do that are short, needs none of it.
        from tidelog.runtime.restore.fit import fit_checkpoint  # noqa: PLC0415

        return fit_checkpoint(job, resumption, resumption.checkpoint, config)
    vertices = compile_job(job, config.parallelism)
    for vertex in vertices:
        config.check_parallelism(vertex.id, vertex.parallelism)
    return RestorePlan(resumption, vertices, {}, frozenset(), {}, ())
