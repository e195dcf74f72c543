"""`tidelog spark conf`, `jar` and `check`: the plug-in and its settings, and whether they hold."""

import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from tidelog.cli.exit_codes import EXIT_OK, EXIT_PROBLEM
from tidelog.cli.options import CONF, add_options, endpoint_option, option
from tidelog.cli.output import Output, Rows
from tidelog.cli.store.options import on_this_machine, opened
from tidelog.errors import ConfigError, usable_path
from tidelog.spark.checkpoint.checkpoint import store_url
from tidelog.spark.checkpoint.inspection import check_checkpoint
from tidelog.spark.plugin.check import CheckResult, check_installation, check_settings
from tidelog.spark.plugin.jar import plugin_jar
from tidelog.spark.plugin.options import OPTIONS
from tidelog.spark.plugin.settings import JARS, read_properties, settings
from tidelog.spark.plugin.toolchain import find_spark
from tidelog.storage.open import StoreAccess

spark_home_option = click.option(
    "--spark-home",
    type=click.Path(file_okay=False, path_type=Path),
    help="The Spark to use; by default $SPARK_HOME, else the installed pyspark.",
)


@click.command("conf")
@on_this_machine
@option(
    "--format",
    "style",
    type=click.Choice(["properties", "args", "json"]),
    default="properties",
    help="Lines of spark-defaults.conf, arguments of spark-submit, or one JSON object.",
)
@click.option("--jar", help="Path or URL of the plug-in's jar; by default it is compiled here.")
@click.option("--no-jar", is_flag=True, help="Leave spark.jars out: the cluster has the jar.")
@click.option(
    "--snapshot-every",
    type=click.IntRange(min=1),
    metavar="BATCHES",
    help="Batches between two snapshots of a state store.  [default: Spark's, 10]",
)
@click.option(
    "--metrics",
    is_flag=True,
    help="The driver exposes its metrics to Prometheus, under names that stay the same.",
)
@add_options(
    *(
        click.option(
            "--" + option.argument.replace("_", "-"),
            option.argument,
            metavar="VALUE",
            help=f"{option.help}  [default: {option.default}]",
        )
        for option in OPTIONS
    )
)
@spark_home_option
def conf_command(
    output: Output,
    /,
    style: str,
    jar: str | None,
    no_jar: bool,
    snapshot_every: int | None,
    metrics: bool,
    spark_home: Path | None,
    **options: str | None,
) -> int:
    """Print the settings that turn the plug-in on.

    spark.plugins and spark.jars are lists: add what the application has there already. Sizes take
    k, m or g, times ms, s or min.
    """
    if jar is not None and no_jar:
        raise ConfigError(
            "options --jar and --no-jar",
            expected="at most one of them",
            found="both",
            action="leave one out",
        )
    conf = settings(jar=jar, snapshot_every=snapshot_every, metrics=metrics, **options)
    if jar is None and not no_jar:
        conf[JARS] = str(plugin_jar(spark_home))
    if style == "json":
        output.document(conf)
    elif style == "args":
        arguments = (f"--conf {shlex.quote(f'{name}={value}')}" for name, value in conf.items())
        output.show(conf, " \\\n".join(arguments))
    else:
        output.show(conf, *(f"{name} {value}" for name, value in conf.items()))
    return EXIT_OK


@click.command("jar")
@on_this_machine
@click.option(
    "--output",
    "target",
    type=click.Path(path_type=Path),
    help="Copy the jar to this file or directory.",
)
@spark_home_option
def jar_command(output: Output, target: Path | None, spark_home: Path | None) -> int:
    """Compile the plug-in for the installed Spark, once, and print the path of its jar.

    The jar fits the minor version of Spark it was compiled with. $TIDELOG_CACHE chooses where
    compiled jars are kept; by default that is the user's cache directory.
    """
    spark = find_spark(spark_home)
    jar = plugin_jar(spark_home)
    if target is not None:
        jar = _copied(jar, target)
    output.show({"jar": str(jar), "spark": spark.version, "scala": spark.scala}, str(jar))
    return EXIT_OK


def _copied(jar: Path, target: Path) -> Path:
    path = target / jar.name if target.is_dir() else target
    expected = "a file or directory that can be written"
    with usable_path(f"--output {path}", expected=expected, action="choose another path"):
        shutil.copyfile(jar, path)
    return path


@click.command("check")
@click.argument("url", required=False)
@click.option("--conf", **CONF)
@click.option(
    "--properties-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The query's settings, like spark-defaults.conf; --conf comes on top.",
)
@click.option("--deep", is_flag=True, help="Read every live changelog in the log, check its CRC.")
@spark_home_option
@endpoint_option
@on_this_machine
async def check_command(
    output: Output,
    url: str | None,
    conf: dict[str, str],
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
    results += check_settings(_query_conf(conf, properties_file), url, spark)
    if url is not None:
        async with opened(url, StoreAccess(endpoint), output, store_url) as invocation:
            with output.progress("reading the checkpoint") as progress:
                results += await check_checkpoint(invocation.store, deep=deep, progress=progress)
    passed = all(result.verdict != "fail" for result in results)
    document = {"url": url, "passed": passed, "findings": results}
    verdict = "the guarantees hold" if passed else "NOT safe: repair what failed"
    output.show(document, *_described(results), "", verdict)
    return EXIT_OK if passed else EXIT_PROBLEM


_VERDICTS: Final = {"ok": "ok", "warn": "warning", "fail": "FAILED"}


def _described(results: Sequence[CheckResult]) -> Iterator[str | Rows]:
    yield Rows(results, "check", ("result", lambda result: _VERDICTS[result.verdict]), "found")
    for result in results:
        if result.action is not None:
            yield f"\n{result.check}: {result.found}\n  next: {result.action}"


def _query_conf(conf: dict[str, str], properties_file: Path | None) -> dict[str, str]:
    if not conf and properties_file is None:
        return settings(jar="the jar of `tidelog spark conf`")
    from_file = read_properties(properties_file) if properties_file else {}
    return from_file | conf
