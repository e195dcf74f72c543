"""`tidelog store check`, `inspect`, `gc`: is a store safe, is it whole, what is garbage in it?"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from tidelog.catalog.application import Application, read_application, stored_partitions
from tidelog.catalog.audit import AuditReport, advised, audit
from tidelog.catalog.gc import GarbagePlan, delete_garbage, plan_gc
from tidelog.checkpoint.invariants import unreadable
from tidelog.cli.exit_codes import EXIT_OK, EXIT_PROBLEM
from tidelog.cli.options import option
from tidelog.cli.output import Rows, fields_of, finding_lines
from tidelog.cli.store.options import StoreCommand, on_store, on_store_for_a_verdict, opened
from tidelog.cli.values import size
from tidelog.concurrency import gather_bounded
from tidelog.errors import ObjectNotFoundError
from tidelog.options.units import plural
from tidelog.runtime.control.client import runs_here
from tidelog.storage.object_names import partition_path
from tidelog.storage.open import StoreAccess
from tidelog.storage.port import ObjectInfo
from tidelog.storage.probe import ProbeReport, probe_store


@click.command("check")
@on_store
async def check_command(invocation: StoreCommand) -> int:
    """Test whether the store at URL keeps what jobs rely on.

    Writes, races for, lists and deletes objects under probe/, 32 MiB among them to measure the
    bandwidth that `tidelog estimate` asks for. Exits with 1 when the store is not safe.
    """
    other = invocation.access.open(invocation.url, invocation.effects)  # another connection
    try:
        report = await probe_store([invocation.store, other], invocation.effects)
    finally:
        await other.close()
    result = ("result", lambda check: "ok" if check.passed else "FAILED")
    safe = f"{report.url} is safe for jobs"
    unsafe = (
        f"{report.url} is NOT safe for jobs: correct what failed, or use S3, a local directory "
        "or another store that passes"
    )
    invocation.output.show(
        {**fields_of(report), "passed": report.passed},
        Rows(report.checks, "name", result, "message"),
        "",
        Rows(report.latencies, "operation", "calls", "min_ms", "median_ms", "max_ms"),
        "",
        Rows(
            report.bandwidths,
            "operation",
            ("large objects", "objects", str),
            ("bandwidth", "bytes_per_s", lambda speed: f"{speed / 1e6:.1f} MB/s"),
        ),
        *_link(report),
        "",
        safe if report.passed else unsafe,
    )
    return EXIT_OK if report.passed else EXIT_PROBLEM


def _link(report: ProbeReport) -> Iterator[str]:
    """The options of estimates that say what was measured; none where nothing was."""
    latency = next(
        (measured.median_ms for measured in report.latencies if measured.operation == "put"), None
    )
    if report.bandwidths and latency is not None:
        speed = min(bandwidth.bytes_per_s for bandwidth in report.bandwidths)
        yield f"for estimates: --bandwidth {speed / 1e6:.0f}MB --latency {max(1, round(latency))}ms"


@click.command("inspect")
@on_store_for_a_verdict
@click.option("--deep", is_flag=True, help="Read all segments and table files, check every CRC.")
async def inspect_command(invocation: StoreCommand, deep: bool) -> int:
    """Check every invariant of the store at URL; nothing is written.

    Names the checkpoints that can be restored, and for each problem those that cannot because
    of it. Exits with 1 when there is a problem, with 4 when the store could not be read, which says
    nothing of it. For an application that several processes share the
    stores of all partitions are checked, and one line says what was found of each.
    """
    output = invocation.output
    if (application := await _application_at(invocation)) is not None:
        return await _inspect_partitions(invocation, *application, deep=deep)
    with output.progress("inspecting") as progress:
        report = await audit(invocation.store, deep=deep, progress=progress)
    if report.problems:
        running = await runs_here(invocation.store.url)
        report = replace(
            report, problems=advised(report.problems, report.checkpoints, running=running)
        )
    newest = report.newest_restorable
    problems = [
        {
            "invariant": problem.check,
            "where": problem.where,
            "expected": problem.expected,
            "found": problem.found,
            "checkpoints": problem.unusable,
            "action": problem.action,
        }
        for problem in report.problems
    ]
    document = {"url": invocation.store.url, "deep": deep, **fields_of(report)}
    document |= {"newest_restorable": newest, "problems": problems}
    output.show(document, *_described(report, deep=deep))
    return EXIT_PROBLEM if report.problems else EXIT_OK


def _described(report: AuditReport, *, deep: bool) -> Iterator[str | Rows]:
    restorable = {True: "yes", False: "NO", None: None}
    yield Rows(
        report.checkpoints,
        *("checkpoint", "kind", ("restorable", lambda s: restorable[s.restorable])),
    )
    for problem in report.problems:
        yield from finding_lines(problem, "checkpoint")
    yield ""
    depth = "every byte read" if deep else "bytes not read, --deep reads them"
    objects = f"{plural(report.objects, 'data object')} of {size(report.bytes)}"
    yield f"{plural(len(report.problems), 'problem')}; {objects}, {depth}"


async def _application_at(invocation: StoreCommand) -> tuple[Application, list[int]] | None:
    """The application at the URL, and its partitions that have a store; None: it is a store."""
    # What is above the stores of partitions is not encrypted when these are.
    plain = StoreAccess(invocation.access.endpoint)
    async with opened(invocation.url, plain, invocation.output) as parent:
        application = await read_application(parent.store)
        if application is None:
            return None
        return application, [number async for number in stored_partitions(parent.store)]


async def _inspect_partitions(
    invocation: StoreCommand, application: Application, partitions: list[int], *, deep: bool
) -> int:
    url, output = invocation.store.url, invocation.output

    async def inspected(partition: int) -> AuditReport:
        path = f"{url}/{partition_path(partition)}"
        store = invocation.access.open(path, invocation.effects)
        try:
            return await audit(store, deep=deep)
        except ObjectNotFoundError as error:  # it has lost all of its checkpoints
            return AuditReport((), (unreadable(path, error),), 0, 0)
        finally:
            await store.close()

    with output.progress("inspecting") as progress:
        reports = await gather_bounded(partitions, inspected, progress)
    stores: list[dict[str, Any]] = [
        {
            "partition": partition,
            "url": f"{url}/{partition_path(partition)}",
            "newest_restorable": report.newest_restorable,
            "objects": report.objects,
            "bytes": report.bytes,
            "problems": len(report.problems),
        }
        for partition, report in reports.items()
    ]
    total = "" if application.partitions is None else f" of {application.partitions}"
    output.show(
        {
            "url": url,
            "job": application.name,
            "partitions": application.partitions,
            "deep": deep,
            "stores": stores,
        },
        Rows(stores, "partition", "newest_restorable", "objects", "bytes", "problems", "url"),
        "",
        f"{plural(len(reports), 'partition')}{total}; `tidelog inspect` of a store says more",
    )
    return EXIT_PROBLEM if any(report.problems for report in reports.values()) else EXIT_OK


@click.command("gc")
@on_store
@option("--dry-run/--delete", default=True, help="Only say what would be deleted.")
async def gc_command(invocation: StoreCommand, dry_run: bool) -> int:
    """Delete the garbage in the store at URL; without --delete only list it.

    Garbage is what generations before the newest one wrote and no retained checkpoint names.
    Refuses when a retained checkpoint cannot be read. Safe while a job runs.
    """
    output = invocation.output
    with output.progress("reading references") as progress:
        plan = await plan_gc(invocation.store, progress)
    if not dry_run:
        with output.progress("deleting") as progress:
            await delete_garbage(invocation.store, plan, progress)
    document = {
        "url": invocation.store.url,
        "generation": plan.generation,
        "deleted": not dry_run,
        "garbage": plan.garbage,
        "garbage_bytes": _bytes(plan.garbage),
        "undecided": plan.undecided,
        "undecided_bytes": _bytes(plan.undecided),
    }
    output.show(document, *_collected(plan, deleted=not dry_run))
    return EXIT_OK


def _collected(plan: GarbagePlan, *, deleted: bool) -> Iterator[str | Rows]:
    verdict = "deleted" if deleted else "garbage"
    if candidates := [*plan.garbage, *plan.undecided]:
        garbage = set(plan.garbage)
        verdict_column = ("verdict", lambda info: verdict if info in garbage else "undecided")
        yield Rows(candidates, verdict_column, "size", ("object", lambda info: info.name))
    yield f"{plural(len(plan.garbage), 'object')} of {size(_bytes(plan.garbage))} {verdict}"
    if plan.undecided:
        yield (
            f"undecided: {plural(len(plan.undecided), 'object')} of generation {plan.generation}: "
            "its job may still name them; the first `tidelog gc` after its next start decides"
        )
    if plan.garbage and not deleted:
        yield "nothing was deleted; add --delete to do it"


def _bytes(infos: tuple[ObjectInfo, ...]) -> int:
    return sum(info.size for info in infos)
