"""The reference page, the dashboard and the alerts for Spark show what there is."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.prometheus import OPERATIONS, check_alerts, firing, needs_prometheus
from tests.support.spark_page import PAGE, PREFIX, documented, parts, series, sums

DASHBOARD: dict[str, Any] = json.loads((OPERATIONS / "spark-dashboard.json").read_text())
RULES: list[dict[str, Any]] = yaml.safe_load((OPERATIONS / "spark-alerts.yml").read_text())[
    "groups"
][0]["rules"]


def names(expression: str) -> set[str]:
    return set(re.findall(r"\bmetrics_\w+", expression))


def of_panels() -> dict[str, set[str]]:
    return {
        panel["title"]: {name for target in panel["targets"] for name in names(target["expr"])}
        for panel in DASHBOARD["panels"]
    }


def test_the_page_has_the_metrics_of_driver_and_executors() -> None:
    assert {"batches", "barrier.time", "executors.alive"} < set(documented("driver"))
    assert {"upload.time", "segment.bytes", "cache.bytes"} < set(documented("executor"))
    assert parts().keys() == {"counter", "gauge", "timer", "histogram"}


@pytest.mark.parametrize("title", of_panels())
def test_every_panel_shows_series_that_there_are(title: str) -> None:
    shown = of_panels()[title]
    assert shown and shown - series() == set()


def test_the_dashboard_shows_every_figure_of_the_driver() -> None:
    shown = {name for found in of_panels().values() for name in found}
    for metric in documented("driver") | sums():
        series_of_it = f"{PREFIX}{metric.replace('.', '_')}_"
        assert any(name.rpartition("_")[0] + "_" == series_of_it for name in shown), metric


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_is_on_series_that_there_are_and_says_what_to_do(rule: dict[str, Any]) -> None:
    used = names(rule["expr"])
    assert used and used - series() == set()
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert {"summary", "description"} <= rule["annotations"].keys()


HEALTHY = {
    "barrier_failures_Count": "0x120",
    "executors_upload_failures_Value": "0x120",
    "barrier_time_99thPercentile": "30000000x120",
    "parts_upload_failures_Count": "0x120",
    "parts_refused_Count": "0+1x120",
    "houseKeeping_failures_Count": "0x120",
    "executors_snapshots_late_Value": "0x120",
    "executors_changelogs_Value": "0+600x120",
    "batches_Count": "0+10x120",
}
"""A query without trouble for two hours, a sample a minute; times in nanoseconds."""

TROUBLE = {
    "TidelogSparkBarrierFailed": {"barrier_failures_Count": "0+1x120"},
    "TidelogSparkUploadsGivenUp": {"parts_upload_failures_Count": "0+1x120"},
    "TidelogSparkBarrierSlow": {"barrier_time_99thPercentile": "61000000000x120"},
    "TidelogSparkDriverFull": {"parts_refused_Count": "0+90x120"},
    "TidelogSparkHouseKeepingFails": {"houseKeeping_failures_Count": "0+1x120"},
    "TidelogSparkSnapshotsLate": {"executors_snapshots_late_Value": "2x120"},
    "TidelogSparkNothingCommitted": {"batches_Count": "10x120"},
}
"""What each alert is for: series that are different then."""


def with_trouble(trouble: dict[str, str]) -> dict[str, str]:
    """Spark's servlet says the kind of a metric, and Prometheus where it scraped it."""
    kinds = {"Count": "counters", "Value": "gauges", "99thPercentile": "timers"}
    where = 'job="orders", instance="a:4040"'
    return {
        f'{PREFIX}{name}{{{where}, type="{kinds[name.rpartition("_")[2]]}"}}': values
        for name, values in (HEALTHY | trouble).items()
    }


def test_every_alert_has_its_trouble_and_is_on_the_page() -> None:
    alerts = [rule["alert"] for rule in RULES]
    assert list(TROUBLE) == alerts
    assert re.findall(r"^\| `(TidelogSpark\w+)` \|", PAGE.read_text(), re.MULTILINE) == alerts
    assert {PREFIX + name for name in HEALTHY} <= series()


@needs_prometheus
def test_each_alert_fires_for_its_trouble_alone_and_none_for_a_healthy_query(
    tmp_path: Path,
) -> None:
    tests = [firing(with_trouble({}))]
    tests += [firing(with_trouble(trouble), alert) for alert, trouble in TROUBLE.items()]
    check_alerts(tmp_path, "spark-alerts.yml", tests)
