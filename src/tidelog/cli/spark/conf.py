"""`tidelog spark conf`: the settings of the plug-in, ready to paste."""

import shlex
from pathlib import Path

import click

from tidelog.cli.options import add_options, option
from tidelog.cli.output import Output
from tidelog.cli.spark.options import spark_home_option
from tidelog.cli.store.options import EXIT_OK, on_this_machine
from tidelog.errors import ConfigError
from tidelog.spark.plugin.jar import plugin_jar
from tidelog.spark.plugin.options import OPTIONS
from tidelog.spark.plugin.settings import JARS, settings


@click.command("conf")
@on_this_machine
@option(
    "--format",
    "style",
    type=click.Choice(["properties", "args", "json"]),
    default="properties",
    help="Lines of spark-defaults.conf, arguments of spark-submit, or one JSON object.",
)
@click.option(
    "--jar", type=str, help="Path or URL of the plug-in's jar; by default it is compiled here."
)
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
            "--" + each.argument.replace("_", "-"),
            each.argument,
            metavar="VALUE",
            help=f"{each.help}  [default: {each.default}]",
        )
        for each in OPTIONS
    )
)
@spark_home_option
def command(
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
    given = settings(jar=jar, snapshot_every=snapshot_every, metrics=metrics, **options)
    if jar is None and not no_jar:
        given[JARS] = str(plugin_jar(spark_home))
    if output.as_json or style == "json":
        output.document(given)
    elif style == "args":
        output.line(" \\\n".join(f"--conf {shlex.quote(f'{k}={v}')}" for k, v in given.items()))
    else:
        for key, value in given.items():
            output.line(f"{key} {value}")
    return EXIT_OK
