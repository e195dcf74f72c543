"""Brokers that stand still: what waits for them ends with its job."""

import signal
from pathlib import Path

import pytest

from tests.process.harness import killed_at_last, wait_until
from tests.process.test_silent_systems import run_of
from tests.support.kafka import Topics
from tests.support.kafka_broker import Broker

WAITS = "has no answer after"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("kafka source", "the source waits"),
        ("kafka sink", WAITS),
        ("kafka sink, at least once", WAITS),
    ],
)
def test_a_job_ends_at_sigterm_while_brokers_stand_still(
    kind: str, said: str, broker: Broker, tmp_path: Path
) -> None:
    """With an hour to wait for each answer."""
    topics = Topics(broker.bootstrap)
    topic = topics.new()
    topics.write(topic, ["a"])
    run, log = run_of(tmp_path, kind, f"{broker.bootstrap} {topic}"), tmp_path / "log"
    with log.open("w") as file, killed_at_last(run.start(stderr=file.fileno())) as process:
        wait_until(lambda: run.slots() >= 3, process)
        with broker.standing_still():
            wait_until(lambda: said in log.read_text(), process)
            process.send_signal(signal.SIGTERM)
            run.end(process)
    assert process.returncode == 130, log.read_text()
    assert "Traceback" not in log.read_text()
