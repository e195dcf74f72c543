"""`tidelog spark jar`: the compiled plug-in."""

import shutil
from pathlib import Path

import click

from tidelog.cli.output import Output
from tidelog.cli.spark.options import spark_home_option
from tidelog.cli.store.options import EXIT_OK, on_this_machine
from tidelog.errors import StorageError
from tidelog.spark.plugin.jar import plugin_jar
from tidelog.spark.plugin.toolchain import find_spark


@click.command("jar")
@on_this_machine
@click.option(
    "--output",
    "target",
    type=click.Path(path_type=Path),
    help="Copy the jar to this file or directory.",
)
@spark_home_option
def command(output: Output, target: Path | None, spark_home: Path | None) -> int:
    """Compile the plug-in for the installed Spark, once, and print the path of its jar.

    The jar fits the minor version of Spark it was compiled with. $TIDELOG_CACHE chooses where
    compiled jars are kept; by default that is the user's cache directory.
    """
    spark = find_spark(spark_home)
    jar = plugin_jar(spark_home)
    if target is not None:
        jar = _copied(jar, target)
    if output.as_json:
        output.document({"jar": str(jar), "spark": spark.version, "scala": spark.scala})
    else:
        output.line(str(jar))
    return EXIT_OK


def _copied(jar: Path, target: Path) -> Path:
    path = target / jar.name if target.is_dir() else target
    try:
        shutil.copyfile(jar, path)
    except OSError as cause:
        raise StorageError(
            f"file {path}",
            expected="that it can be written",
            found=str(cause.strerror or cause),
            action="choose another --output",
        ) from cause
    return path
