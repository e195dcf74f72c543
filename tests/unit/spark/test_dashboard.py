"""The dashboard and the alerts for Spark show figures that there are."""

import json
import re
from typing import Any

import pytest
import yaml

from tests.support.documentation import ROOT
from tests.support.spark_metrics import GUIDE, PREFIX, documented, parts, series, sums

OPERATIONS = ROOT / "docs" / "operations"
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


def test_the_guide_has_metrics_of_driver_and_executors() -> None:
    assert {"batches", "barrier.time", "executors.alive"} < set(documented("driver"))
    assert {"upload.time", "segment.bytes", "inFlight.bytes"} < set(documented("executor"))
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


def test_panels_have_titles_of_their_own_and_lie_beside_one_another() -> None:
    assert len(of_panels()) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        x, y, w, h = (panel["gridPos"][key] for key in "xywh")
        cells = {(column, row) for column in range(x, x + w) for row in range(y, y + h)}
        assert x + w <= 24 and not taken & cells, panel["title"]
        taken |= cells


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_is_on_series_that_there_are_and_says_what_to_do(rule: dict[str, Any]) -> None:
    used = names(rule["expr"])
    assert used and used - series() == set()
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert {"summary", "description"} <= rule["annotations"].keys()
    assert f"| `{rule['alert']}` |" in GUIDE.read_text()


def test_the_guide_describes_no_alert_that_is_not_there() -> None:
    told = re.findall(r"^\| `(TidelogSpark\w+)` \|", GUIDE.read_text(), re.MULTILINE)
    assert told == [rule["alert"] for rule in RULES]
