"""The dashboard and the alerts name only series and labels that exist; each alert is explained."""

import re
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from tests.support.documentation import ROOT
from tests.support.prometheus import (
    DASHBOARD,
    OPERATIONS,
    PANELS,
    QUERIES,
    RULES,
    Query,
    check_alerts,
    firing,
    needs_prometheus,
    promtool,
)
from tidelog.runtime.status.series import SERIES

LABELS = {series.prometheus_name: set(series.labels) for series in SERIES}
OF_A_SCRAPE = {"job", "instance"}
"""Labels that Prometheus adds to what it scrapes."""
OF_A_TARGET = {"up", "process_start_time_seconds"}
"""Series of the process, which know nothing of the job in it."""
NAME = re.compile(rf"\b(tidelog_\w+|{'|'.join(OF_A_TARGET)})\b")
GUIDE = (ROOT / "docs" / "guides" / "monitoring.md").read_text()


def wrong_names(query: Query) -> list[str]:
    """Series and labels of a query that do not exist."""
    wrong = []
    known: set[str] = set()
    for name, matchers in re.findall(NAME.pattern + r"(\{[^}]*\})?", query.expr):
        labels = LABELS.get(name, set()) | OF_A_SCRAPE
        known |= labels
        if name not in LABELS and name not in OF_A_TARGET:
            wrong.append(name)
        wrong += [
            f"{name}: {label}"
            for label in re.findall(r"(\w+)\s*[=!]~?", matchers)
            if label not in labels
        ]
    grouped = re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", query.expr)
    used = [label.strip() for group in grouped for label in group.split(",")] + query.shown
    return wrong + [label for label in used if label not in known]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.where)
def test_a_query_names_only_what_exists(query: Query) -> None:
    assert NAME.search(query.expr)
    assert wrong_names(query) == []


def test_every_annotation_of_an_alert_uses_labels_that_its_query_keeps() -> None:
    for rule in RULES:
        kept = {label for name in NAME.findall(rule["expr"]) for label in LABELS.get(name, ())}
        grouped = re.search(r"\bby \(([^)]*)\)", rule["expr"])
        if grouped:
            kept = {label.strip() for label in grouped[1].split(",")}
        else:
            kept |= OF_A_SCRAPE
        used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert used <= kept, rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_every_alert_is_explained_in_the_guide_and_nothing_else_is() -> None:
    assert re.findall(r"^### (Tidelog\w+)$", GUIDE, re.M) == [rule["alert"] for rule in RULES]


def test_the_panels_lie_side_by_side_and_explain_themselves() -> None:
    boxes = [(panel["title"], panel["gridPos"]) for panel in DASHBOARD["panels"]]
    for title, box in boxes:
        assert box["x"] + box["w"] <= 24, title
    for (one, a), (other, b) in combinations(boxes, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or above, (one, other)
    assert max(Counter(panel["id"] for panel in DASHBOARD["panels"]).values()) == 1
    for panel in PANELS:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"


def test_the_provisioning_is_that_of_the_commands_in_the_guide() -> None:
    [source] = yaml.safe_load((OPERATIONS / "grafana/datasources/tidelog.yml").read_text())[
        "datasources"
    ]
    [provider] = yaml.safe_load((OPERATIONS / "grafana/dashboards/tidelog.yml").read_text())[
        "providers"
    ]
    scraped = yaml.safe_load((OPERATIONS / "prometheus.yml").read_text())
    assert source["type"] == "prometheus" and source["url"] == "http://127.0.0.1:9090"
    assert source["jsonData"]["timeInterval"] == scraped["global"]["scrape_interval"]
    assert provider["options"]["path"] == "$TIDELOG_OPERATIONS"
    assert "TIDELOG_OPERATIONS=$PWD/docs/operations grafana server" in GUIDE
    [job] = scraped["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["127.0.0.1:9464"]}]
    assert "--metrics-port 9464" in GUIDE
    assert scraped["rule_files"] == ["alerts.yml", "spark-alerts.yml"]


HEALTHY = {
    "process_start_time_seconds": "1700000000x120",
    "running": "1x120",
    "status_age_seconds": "1x120",
    "restore_fraction": "1x120",
    "restore_bytes": "1000x120",
    "restore_changes": "1000x120",
    "hydration_fraction": "1x120",
    "generation": "7x120",
    "checkpoints_completed_total": "0+60x120",
    "checkpoints_failed_total": "0x120",
    "checkpoint_age_seconds": "1x120",
    "checkpoint_interval_seconds": "1x120",
    "checkpoint_p99_seconds": "1x120",
    "materialization_lag_seconds": "10x120",
    "materialization_interval_seconds": "60x120",
    "materializations_failed_total": "0x120",
    "materialized_bytes": "1000000000x120",
    "log_bytes": "2000000000x120",
    "unread_input": "0x120",
    "objects_lost_total": "0x120",
    "objects_missing": "0x120",
    "log_queued_bytes": "10x120",
    "log_queue_limit_bytes": "1000x120",
    "log_backpressured_seconds_total": "0+0.1x120",
    "task_backpressured_seconds_total": "0+1x120",
    "long_standstills_total": "0+0.1x120",
    "record_latency_seconds": "0.5x120",
    "store_failures_total": "0x120",
    "log_upload_attempts_total": "0+61x120",
    "log_upload_requests_total": "0+60x120",
    "memory_used_bytes": "600x120",
    "memory_budget_bytes": "1000x120",
    "late_records_total": "0+1x120",
    "records_in_total": "0+6000x120",
    "watermark_ms": "1700000000000+60000x120",
    "event_time_unknown": "0x120",
    "records_skipped_total": "0x120",
    "worker_silent_seconds": "1x120",
    "local_copies_damaged_total": "0x120",
}
"""A job without trouble for two hours, a sample a minute."""

TROUBLE: dict[str, dict[str, str]] = {
    "TidelogTargetDown": {"up": "0x120"},
    "TidelogJobNotRunning": {"running": "0x120"},
    "TidelogJobHangs": {"status_age_seconds": "0+60x120"},
    "TidelogRestoreStalled": {"restore_fraction": "0.5x120", "running": "0x120"},
    "TidelogRestoreSlow": {
        "restore_fraction": "0.1+0.001x120",
        "restore_bytes": "0+1000x120",
        "running": "0x120",
    },
    "TidelogHydrationSlow": {"hydration_fraction": "0.5x120"},
    "TidelogRestarts": {"process_start_time_seconds": "1700000000+60x120"},
    "TidelogCheckpointsFailing": {"checkpoints_failed_total": "0+1x120"},
    "TidelogNoCheckpoint": {
        "checkpoint_age_seconds": "0+60x120",
        "checkpoints_completed_total": "0x120",
    },
    "TidelogCheckpointsSlow": {"checkpoint_p99_seconds": "11x120"},
    "TidelogMaterializationsLate": {"materialization_lag_seconds": "121x120"},
    "TidelogMaterializationsFailing": {"materializations_failed_total": "0+1x120"},
    "TidelogLogGrows": {"log_bytes": "2000000000+200000000x120"},
    "TidelogObjectsMissing": {"objects_lost_total": "0x60 3x60"},
    "TidelogLogQueueFull": {"log_queued_bytes": "950x120"},
    "TidelogWritersWait": {"log_backpressured_seconds_total": "0+30x120"},
    "TidelogBackPressure": {"task_backpressured_seconds_total": "0+55x120"},
    "TidelogInputPilesUp": {"unread_input": "0+1000000x120"},
    "TidelogStandstills": {"long_standstills_total": "0+1x120"},
    "TidelogRecordLatency": {"record_latency_seconds": "15x120"},
    "TidelogStoreFailures": {"store_failures_total": "0+1x120"},
    "TidelogUploadRetries": {"log_upload_attempts_total": "0+90x120"},
    "TidelogMemoryNearBudget": {"memory_used_bytes": "850x120"},
    "TidelogLateRecords": {"late_records_total": "0+600x120"},
    "TidelogEventTimeStands": {"watermark_ms": "1700000000000x120"},
    "TidelogRecordsSkipped": {"records_skipped_total": "0+1x120"},
    "TidelogWorkerSilent": {"worker_silent_seconds": "30x120"},
    "TidelogLocalCopiesDamaged": {"local_copies_damaged_total": "0+1x120"},
}
"""What each alert is for: series that are different then."""


LIFE = 6
"""Samples from one start to the next, where a job does not stay: of the last it is away."""


def restarting(name: str, values: str) -> str:
    """The samples of a series when the process is started again and again."""
    samples: list[str] = []
    for part in values.split():
        start, step, count = re.fullmatch(r"([\d.]+)(?:\+([\d.]+))?x(\d+)", part).groups()  # type: ignore[union-attr]
        for number in range(int(count)):
            life, age = divmod(len(samples), LIFE)
            grown = float(step or 0) * (age if name.endswith("_total") else number)
            if name == "process_start_time_seconds":
                grown = 60.0 * LIFE * life
            away = "0" if name == "up" else "stale"
            samples.append(away if age == LIFE - 1 else f"{float(start) + grown:f}")
    return " ".join(samples)


def with_trouble(trouble: dict[str, str], *, restarts: bool = False) -> dict[str, str]:
    """The series of a job, with labels as a scrape gives them."""
    series = HEALTHY | {"up": "1x120"} | trouble
    if restarts:
        series = {name: restarting(name, values) for name, values in series.items()}
    series = {
        name if name in OF_A_TARGET else f"tidelog_{name}": values
        for name, values in series.items()
    }
    labelled = {}
    for name, values in series.items():
        own = LABELS.get(name, set()) - {"job_name", "statistic"}
        labels = {"job": "tidelog", "instance": "a:9464"} | dict.fromkeys(own, "x")
        if "statistic" in LABELS.get(name, set()):
            labels["statistic"] = "p99"
        if name not in OF_A_TARGET:
            labels["job_name"] = "orders"
        written = ", ".join(f'{label}="{value}"' for label, value in labels.items())
        labelled[f"{name}{{{written}}}"] = values
    return labelled


def test_every_alert_has_its_trouble_and_every_trouble_its_alert() -> None:
    assert list(TROUBLE) == [rule["alert"] for rule in RULES]
    for name in HEALTHY.keys() - OF_A_TARGET:
        assert f"tidelog_{name}" in LABELS


@needs_prometheus
def test_the_files_are_what_prometheus_takes() -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", OPERATIONS / "alerts.yml")
    promtool("check", "config", OPERATIONS / "prometheus.yml")


@needs_prometheus
def test_each_alert_fires_for_its_trouble_alone_and_none_for_a_healthy_job(tmp_path: Path) -> None:
    tests = [firing(with_trouble({}))]
    tests += [firing(with_trouble(trouble), alert) for alert, trouble in TROUBLE.items()]
    check_alerts(tmp_path, "alerts.yml", tests)


@needs_prometheus
def test_each_alert_fires_for_its_trouble_also_when_the_job_is_started_again_and_again(
    tmp_path: Path,
) -> None:
    tests = [firing(with_trouble({}, restarts=True), "TidelogRestarts")]
    for alert, trouble in TROUBLE.items():
        fired = sorted({alert, "TidelogRestarts"})
        tests.append(firing(with_trouble(trouble, restarts=True), *fired))
    check_alerts(tmp_path, "alerts.yml", tests)
