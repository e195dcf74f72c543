"""`tidelog spark doctor`: do settings, file system, Spark and checkpoint give the guarantees?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tidelog.cli.options import endpoint_option
from tidelog.cli.output import Output
from tidelog.cli.spark.options import spark_home_option
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, on_this_machine, opened
from tidelog.spark.checkpoint.health import check_checkpoint
from tidelog.spark.checkpoint.location import store_url
from tidelog.spark.plugin.check_result import CheckResult
from tidelog.spark.plugin.doctor import check_installation, check_settings
from tidelog.spark.plugin.settings import parse_arguments, read_properties, settings
from tidelog.storage.access import StoreAccess


@click.command("doctor")
@click.argument("url", required=False)
@click.option(
    "--conf",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the query; may be repeated.",
)
@click.option(
    "--properties-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The query's settings, like spark-defaults.conf; --conf comes on top.",
)
@click.option("--deep", is_flag=True, help="Read every live changelog in the log, check its CRC.")
@spark_home_option
@endpoint_option
@on_this_machine
async def command(
    output: Output,
    url: str | None,
    given: tuple[str, ...],
    properties_file: Path | None,
    deep: bool,
    spark_home: Path | None,
    endpoint: str | None,
) -> int:
    """Check whether a query has the guarantees of the plug-in; nothing is written.

    Checks this machine's Spark and Java, the query's settings, and with URL the checkpoint there
    and its file system. Without --conf and --properties-file the settings are those that
    `tidelog spark conf` prints; with them they are complete: what is not given counts with Spark's
    own default. Exits with 1 when a check fails.
    """
    results, spark = check_installation(spark_home)
    results += check_settings(_conf(given, properties_file), url, spark)
    if url is not None:
        async with opened(url, StoreAccess(endpoint), output, store_url) as invocation:
            with output.progress("reading the checkpoint") as progress:
                results += await check_checkpoint(invocation.store, deep=deep, progress=progress)
    return _report(output, url, results)


def _conf(given: Sequence[str], properties_file: Path | None) -> dict[str, str]:
    if not given and properties_file is None:
        return settings(jar="the jar of `tidelog spark conf`")
    from_file = read_properties(properties_file) if properties_file else {}
    return from_file | parse_arguments(given)


def _report(output: Output, url: str | None, results: Sequence[CheckResult]) -> int:
    passed = all(result.verdict != "fail" for result in results)
    if output.as_json:
        fields: dict[str, Any] = {"url": url, "passed": passed, "findings": results}
        output.document(fields)
    else:
        _print(output, results, passed=passed)
    return EXIT_OK if passed else EXIT_PROBLEM


def _print(output: Output, results: Sequence[CheckResult], *, passed: bool) -> None:
    verdicts = {"ok": "ok", "warn": "warning", "fail": "FAILED"}
    output.table(
        ["check", "result", "found"],
        [[result.check, verdicts[result.verdict], result.found] for result in results],
    )
    for result in results:
        if result.action is not None:
            output.line()
            output.line(f"{result.check}: {result.found}")
            output.line(f"  next: {result.action}")
    output.line()
    output.line("the guarantees hold" if passed else "NOT safe: mend what failed")
