"""The plan of a start, whether the job begins or goes on.

Invariant: parent and workers make the same plan, as it follows from the arguments alone.
"""

from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.restore.choose import Resumption
from tidelog.runtime.restore.plan import RestorePlan, begin


def resume(job: Job, resumption: Resumption, config: JobConfig) -> RestorePlan:
    """The plan of a job that begins or goes on; raises as `begin` and `fit_checkpoint`."""
    if resumption.checkpoint is None:
        return begin(job, resumption, config)
    # A job that begins, as most do that are short, needs none of it.
    from tidelog.runtime.restore.fit import fit_checkpoint  # noqa: PLC0415

    return fit_checkpoint(job, resumption, resumption.checkpoint, config)
