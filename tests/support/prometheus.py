"""A real Prometheus, where one is installed; and what the files of docs/operations say."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from tests.support.documentation import ROOT
from tests.support.ports import free_port
from tests.wire.servers import TOOLS

OPERATIONS = ROOT / "docs" / "operations"
DASHBOARD = json.loads((OPERATIONS / "dashboard.json").read_text())
ALERTS = yaml.safe_load((OPERATIONS / "alerts.yml").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ROWS = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]


@dataclass(frozen=True)
class Query:
    """A query of the dashboard or of an alert."""

    where: str
    expr: str
    legend: str = ""

    @property
    def shown(self) -> list[str]:
        """Labels in its legend."""
        return re.findall(r"\{\{\s*(\w+)\s*\}\}", self.legend)

    def over(self, window: str) -> str:
        """The query with values for the variables of Grafana."""
        found = self.expr.replace("$__rate_interval", window).replace("$__range", window)
        return re.sub(r"\$(job|operator|instance)\b", ".*", found)


def place(panel: dict[str, Any]) -> str:
    """A panel's row and title."""
    above = [row for row in ROWS if row["gridPos"]["y"] < panel["gridPos"]["y"]]
    return f"{above[-1]['title']}: {panel['title']}"


QUERIES = [
    *(
        Query(f"{place(panel)} {target['refId']}", target["expr"], target["legendFormat"])
        for panel in PANELS
        for target in panel["targets"]
    ),
    *(Query(each["name"], each["expr"]) for each in DASHBOARD["annotations"]["list"]),
    *(Query(rule["alert"], rule["expr"]) for rule in RULES),
]


@cache
def program(name: str) -> str | None:
    """The program that is installed, or else the one that was built for tests."""
    return shutil.which(name) or next(map(str, sorted(TOOLS.glob(f"{name}-v*"))), None)


def reason_without() -> str | None:
    """Why there is no Prometheus to ask; None when there is one."""
    missing = [name for name in ("prometheus", "promtool") if program(name) is None]
    if not missing:
        return None
    return f"{' and '.join(missing)} not found: `python -m tests.wire.servers` builds them"


needs_prometheus = pytest.mark.skipif(reason_without() is not None, reason=str(reason_without()))


def promtool(*arguments: object) -> str:
    """Run promtool, which must succeed; what it printed."""
    command = [program("promtool") or "promtool", *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=OPERATIONS)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout + run.stderr


def firing(series: Mapping[str, str], *alerts: str, minutes: int = 110) -> dict[str, object]:
    """A test for promtool: with these series, a sample a minute, these alerts fire after so many
    minutes and no other.
    """
    fire = 'count by (alertname) (ALERTS{alertstate="firing"})'
    found = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": fire, "eval_time": f"{minutes}m", "exp_samples": found}],
    }


def check_alerts(directory: Path, rules: str, tests: list[dict[str, object]]) -> None:
    document = {"rule_files": [str(OPERATIONS / rules)], "evaluation_interval": "1m"}
    file = directory / "alerts-test.yml"
    file.write_text(yaml.safe_dump(document | {"tests": tests}))
    promtool("test", "rules", file)


@dataclass(frozen=True)
class Prometheus:
    url: str

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API."""
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(parameters)}") as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]

    def samples(self, query: str) -> list[Any]:
        """What a query finds now."""
        found: list[Any] = self.get("query", query=query)["result"]
        return found


def in_seconds(rules: str) -> str:
    """The alerts with a second for each minute of their ranges, and less patience likewise."""
    rules = re.sub(r"(?<=[\[ ])(\d+)h\b", lambda hours: f"{60 * int(hours[1])}m", rules)
    rules = re.sub(r"(?<=[\[ ])(\d+)m\b", r"\1s", rules)
    return rules.replace(", 60)", ", 2)")


@contextmanager
def server(directory: Path, *targets: int, rules: Path | None = None) -> Iterator[Prometheus]:
    """A Prometheus that scrapes ports five times a second, with the alerts."""
    config = yaml.safe_load((OPERATIONS / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "200ms", "evaluation_interval": "1s"}
    config["rule_files"] = [str(rules or OPERATIONS / "alerts.yml")]
    config["scrape_configs"][0]["static_configs"] = [
        {"targets": [f"127.0.0.1:{target}" for target in targets]}
    ]
    file = directory / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [
        *(
            program("prometheus") or "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={directory / 'data'}",
        ),
        *(f"--web.listen-address={address}", "--log.level=error"),
    ]
    process = subprocess.Popen(command, cwd=directory)
    try:
        yield Prometheus(f"http://{address}")
        assert process.poll() is None
    finally:
        process.kill()  # what it has stored is of no use
        process.wait()
