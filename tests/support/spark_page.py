"""The metrics as docs/reference/spark-plugin.md lists them."""

import re

from tests.support.documentation import ROOT

PAGE = ROOT / "docs" / "reference" / "spark-plugin.md"
PREFIX = "metrics_spark_driver_plugin_tidelog_spark_TidelogPlugin_"
"""Before the name of every series, with the settings of `tidelog spark conf --metrics`."""

_ROW = re.compile(
    r"^\| `([A-Za-z.]+)` \| (counter|gauge|timer|histogram) \| (.+) \|$", re.MULTILINE
)


def documented(side: str) -> dict[str, str]:
    """The kind of every metric in the table of `driver` or `executor`, by name."""
    page = PAGE.read_text()
    table = page.partition(f"| {side} | kind | meaning |")[2].partition("\n\n")[0]
    return {name: kind for name, kind, _ in _ROW.findall(table)}


def sums() -> dict[str, str]:
    """What the driver sums up over its executors, which the page describes in a sentence."""
    figures = {name for name, kind in documented("executor").items() if kind in _SUMMED}
    return {f"executors.{name}": "gauge" for name in figures}


def parts() -> dict[str, set[str]]:
    """What Prometheus gets of a metric, by its kind, as the page's table has it."""
    page = PAGE.read_text()
    table = page.partition("| kind | parts |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| ")]
    return {
        kind.strip(): set(re.findall(r"`(\w+)`", named))
        for kinds, named in rows
        for kind in kinds.split(",")
    }


def series() -> set[str]:
    """The names of all series of the driver that Prometheus gets."""
    known = parts()
    metrics = documented("driver") | sums()
    return {
        f"{PREFIX}{name.replace('.', '_')}_{part}"
        for name, kind in metrics.items()
        for part in known[kind]
    }


_SUMMED = ("counter", "gauge")
