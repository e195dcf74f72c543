"""`tidelog inspect` of an application: what is in the store of each partition."""

from tidelog.catalog.application import Application, read_application, stored_partitions
from tidelog.catalog.audit import AuditReport, audit
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, StoreCommand, opened
from tidelog.cli.values import size
from tidelog.concurrency import gather_bounded
from tidelog.storage.access import StoreAccess
from tidelog.storage.object_names import partition_path


async def partitions_at(invocation: StoreCommand) -> tuple[Application, list[int]] | None:
    """The application at the URL, and its partitions that have a store; None: it is a store."""
    # What is above the stores of partitions is not encrypted when these are.
    plain = StoreAccess(invocation.access.endpoint)
    async with opened(invocation.url, plain, invocation.output) as above:
        application = await read_application(above.store)
        if application is None:
            return None
        return application, [each async for each in stored_partitions(above.store)]


async def inspect_partitions(
    invocation: StoreCommand, application: Application, partitions: list[int], *, deep: bool
) -> int:
    """Check the stores of all partitions."""
    url, output = invocation.store.url, invocation.output

    async def inspected(partition: int) -> AuditReport:
        path = f"{url}/{partition_path(partition)}"
        store = invocation.access.open(path, invocation.effects)
        try:
            return await audit(store, deep=deep)
        finally:
            await store.close()

    with output.progress("inspecting") as progress:
        reports = await gather_bounded(partitions, inspected, progress)
    if output.as_json:
        output.document(
            {
                "url": url,
                "job": application.name,
                "partitions": application.partitions,
                "deep": deep,
                "stores": [
                    {
                        "partition": partition,
                        "url": f"{url}/{partition_path(partition)}",
                        "newest_restorable": report.newest_restorable,
                        "objects": report.objects,
                        "bytes": report.bytes,
                        "problems": len(report.problems),
                    }
                    for partition, report in reports.items()
                ],
            }
        )
    else:
        output.table(
            ["partition", "newest restorable slot", "objects", "bytes", "problems", "store"],
            [
                [
                    partition,
                    report.newest_restorable,
                    report.objects,
                    size(report.bytes),
                    len(report.problems),
                    f"{url}/{partition_path(partition)}",
                ]
                for partition, report in reports.items()
            ],
        )
        output.line()
        known = "" if application.partitions is None else f" of {application.partitions}"
        output.line(f"{len(reports)} partitions{known}; `tidelog inspect` of a store says more")
    return EXIT_PROBLEM if any(report.problems for report in reports.values()) else EXIT_OK
