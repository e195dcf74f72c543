"""`tidelog spark doctor`: do settings, file system, Spark and checkpoint give the guarantees?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tidelog.cli.options import EXIT_OK, EXIT_PROBLEM, StoreCommand, reporting
from tidelog.cli.output import Output
from tidelog.cli.spark_options import spark_home_option, with_checkpoint
from tidelog.spark.doctor import check_installation, check_settings
from tidelog.spark.findings import Finding
from tidelog.spark.health import check_checkpoint
from tidelog.spark.properties import parse_arguments, read_properties
from tidelog.spark.settings import settings


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
@click.option("--endpoint", metavar="URL", help="S3 endpoint, when it is not that of AWS.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; see docs/cli-json.md.")
@click.option("--debug", is_flag=True, help="Print tracebacks.")
def command(
    url: str | None,
    given: tuple[str, ...],
    properties_file: Path | None,
    deep: bool,
    spark_home: Path | None,
    endpoint: str | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Check whether a query has the guarantees of the plug-in; nothing is written.

    Checks this machine's Spark and Java, the query's settings, and with URL the checkpoint there
    and its file system. Without --conf and --properties-file the settings are those that
    `tidelog spark conf` prints; with them they are complete: what is not given counts with Spark's
    own default. Exits with 1 when a check fails.
    """
    output = Output(as_json=as_json)

    async def work() -> int:
        findings, spark = check_installation(spark_home)
        conf = _conf(given, properties_file)
        findings += check_settings(conf, url, spark)
        if url is not None:

            async def look(invocation: StoreCommand) -> int:
                with output.progress("reading the checkpoint") as progress:
                    findings.extend(
                        await check_checkpoint(invocation.store, deep=deep, progress=progress)
                    )
                return EXIT_OK

            await with_checkpoint(url, endpoint, output, look)
        return _report(output, url, findings)

    click.get_current_context().exit(reporting(work, output, debug=debug))


def _conf(given: Sequence[str], properties_file: Path | None) -> dict[str, str]:
    if not given and properties_file is None:
        return settings(jar="the jar of `tidelog spark conf`")
    from_file = read_properties(properties_file) if properties_file else {}
    return from_file | parse_arguments(given)


def _report(output: Output, url: str | None, findings: Sequence[Finding]) -> int:
    passed = all(finding.verdict != "fail" for finding in findings)
    if output.as_json:
        fields: dict[str, Any] = {"url": url, "passed": passed, "findings": findings}
        output.document(fields)
    else:
        _print(output, findings, passed=passed)
    return EXIT_OK if passed else EXIT_PROBLEM


def _print(output: Output, findings: Sequence[Finding], *, passed: bool) -> None:
    verdicts = {"ok": "ok", "warn": "warning", "fail": "FAILED"}
    output.table(
        ["check", "result", "found"],
        [[finding.check, verdicts[finding.verdict], finding.found] for finding in findings],
    )
    for finding in findings:
        if finding.action is not None:
            output.line()
            output.line(f"{finding.check}: {finding.found}")
            output.line(f"  next: {finding.action}")
    output.line()
    output.line("the guarantees hold" if passed else "NOT safe: mend what failed")
