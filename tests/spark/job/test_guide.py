"""The guide takes a job from one machine to Spark, by the commands that it prints."""

import os
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import msgspec

from tests.process.harness import started, wait_until
from tests.spark.job import test_operators
from tests.spark.support.session import BASE, PATIENCE_S, ROOT
from tests.support.documentation import BLOCKS

PAGE = (ROOT / "docs" / "guides" / "spark-cluster.md").read_text()
COMMANDS = re.findall(r"^tidelog (.*)$", PAGE, re.MULTILINE)
MINUTE_MS = 60_000
LINES = {
    "`count`, `sum`": ["count", "sum", "mean", "running-top", "aggregate", "maximum"],
    "the same without": [],
    "`window(Tumbling)`": ["tumbling"],
    "`window(Sliding)`": ["sliding"],
    "`window(Session)`": ["session"],
    "`window(Count)`": ["count-window"],
    "`window(...).records`": ["records", "top"],
    "`allowed_lateness=`": ["lateness"],
    "`deduplicate`": ["deduplicate"],
    "`join` inner": ["inner-join"],
    "`join` left": ["left-join", "outer-join"],
    "`enrich` by event": ["enrich"],
    "`enrich` by processing": ["enrich-now"],
    "`transform_with_state`, time mode `none`": ["running"],
    "`transform_with_state`, time mode `event`": ["streaks"],
    "`transform_with_state`, time mode `processing`": ["clocked"],
    "several": ["several"],
    "`event_time` after": ["sums"],
    "`map`": ["union"],
}
"""What tries a line of the table: outputs of jobs that are compared."""
REFUSED = ("`broadcast`", "`PushSource`", "the same without")
"""Lines that tests/unit/spark/job/test_plan.py and test_splits.py try."""
ELSEWHERE = ("sources", "a source of your own", "sinks")
ELSEWHERE_COMPARED = {"clocked", "sums"}
"""Outputs of tests of their own, such as test_event_time.py."""


def order(number: int) -> dict[str, object]:
    country = ("FI", "PT", "NO")[number % 3]
    return {"country": country, "amount": number, "time_ms": number * 1_000}


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unseen = path.parent / f".{path.name}"
    unseen.write_bytes(b"\n".join(map(msgspec.json.encode, rows)) + b"\n")
    unseen.rename(path)


def run(command: str, here: Path, *options: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    arguments = [*command.split(), *options]
    return started(*arguments, cwd=here, env=environment, start_new_session=True)


def finished(process: "subprocess.Popen[str]") -> None:
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors


def revenue(here: Path) -> Counter[tuple[str, int, int]]:
    """What the job has written of complete minutes."""
    rows: list[tuple[str, int, int]] = []
    for path in (here / "revenue").glob("*part-*"):
        for line in path.read_bytes().splitlines():
            row = msgspec.json.decode(line)
            rows.append((row["country"], row["start_ms"], row["amount"]))
    return Counter(row for row in rows if row[0] != "end")


def test_the_job_of_the_guide_goes_on_in_spark(tmp_path: Path, spark_or_skip: None) -> None:
    embedded, stop, on_spark, *_ = COMMANDS
    (tmp_path / "shop.py").write_text(BLOCKS["spark-cluster 0"])
    orders = [order(number) for number in range(600)]
    write(tmp_path / "orders" / "1.jsonl", orders[:300])
    process = run(embedded, tmp_path, "--quiet", "--checkpoint-interval", "200ms")
    try:
        wait_until(lambda: len(revenue(tmp_path)) >= 3, process)
        finished(run(stop, tmp_path))
        finished(process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    end = {"country": "end", "amount": 0, "time_ms": 10_000_000}
    write(tmp_path / "orders" / "2.jsonl", [*orders[300:], end])
    conf = {**BASE, "spark.sql.shuffle.partitions": "2"}
    options = [f"--conf={name}={value}" for name, value in conf.items()]
    finished(run(on_spark, tmp_path, "--available-now", "--master", "local[2]", *options))
    sums: Counter[tuple[object, int]] = Counter()
    for number, row in enumerate(orders):
        sums[row["country"], number * 1_000 // MINUTE_MS * MINUTE_MS] += number
    expected = {(country, start, amount) for (country, start), amount in sums.items()}
    assert revenue(tmp_path) == Counter(expected)


def test_each_line_of_the_table_is_tried() -> None:
    [table] = re.findall("<!-- operators -->(.*)<!-- end of operators -->", PAGE, re.DOTALL)
    lines = [line[2:].partition(" | ")[0] for line in table.strip().splitlines()[2:]]
    compared = {
        name for names in test_operators.OUTPUTS.values() for name in names
    } | ELSEWHERE_COMPARED
    for line in lines:
        tried = [names for begin, names in LINES.items() if line.startswith(begin)]
        other = line.startswith((*REFUSED, *ELSEWHERE))
        assert len(tried) == 1 or other, line
        assert all(name in compared for names in tried for name in names), line
