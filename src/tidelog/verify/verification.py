"""`verify`: every checkpoint of a job, or every batch of a Spark query, restored and checked.

Invariants: nothing is written to the store; what a running job drops, or a running query purges
meanwhile, is no damage.
"""

from tidelog.checkpoint.finding import Findings, without_changes
from tidelog.concurrency import Progress, no_progress
from tidelog.engines import Engine
from tidelog.spark.checkpoint.location import find_layout
from tidelog.storage.port import ObjectStore
from tidelog.verify.job.store import read_job
from tidelog.verify.query.checkpoint import read_query
from tidelog.verify.report import VerifyReport, checkpoint_reports, not_checked
from tidelog.verify.results import Choice


async def verify(
    store: ObjectStore,
    engine: Engine,
    *,
    chosen: Choice = "all",
    progress: Progress = no_progress,
) -> VerifyReport:
    """Verify all checkpoints, the latest, the one in a slot (of a Spark query: a batch), or the
    newest savepoint of a name.

    Raises ObjectNotFoundError for one that is not there, RestoreError when there is none at all,
    and what the store raises.
    """
    layout = await find_layout(store)
    read = read_job if layout == "job" else read_query
    work = await read(store, chosen, engine.workers, progress)
    results, present = await work.settle(await engine.run(work.units, progress))
    findings = Findings()
    findings.add(work.findings)
    for result in results:
        findings.add(result.findings)
    problems = tuple(without_changes(findings.without_repeats(), work.listed, present))
    return VerifyReport(
        url=store.url,
        layout=layout,
        engine=engine.name,
        checkpoints=checkpoint_reports(work.checkpoints, results, problems, present, work.expired),
        problems=problems,
        unchecked=not_checked(results, present),
        all_seen=chosen == "all",
    )
