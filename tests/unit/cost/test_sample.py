"""A sample of a job's data says how large its values are and what they are stored as."""

import json
from pathlib import Path
from random import Random

import pytest

from tests.support.cli import tidelog
from tidelog.cost.sample import read_values, sampled
from tidelog.errors import ConfigError

JOB = ("estimate", "--writes-per-second", "1k", "--keys", "100k", "--provider", "aws-s3-standard")


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    path, rng = tmp_path / "visits.jsonl", Random(1)
    lines = (
        {"user": rng.randrange(10**6), "page": rng.choice(["/", "/cart"]), "agent": "Firefox"}
        for _ in range(5_000)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_what_recurs_is_stored_smaller_than_what_does_not(visits: Path) -> None:
    rng = Random(2)
    alike = sampled(read_values(visits), 16, 1_000)
    random = sampled([rng.randbytes(60) for _ in range(5_000)], 16, 1_000)
    assert 0.05 < alike.compression < 0.5 < 0.65 < random.compression <= 1
    assert alike.table_compression < random.table_compression
    assert 40 < alike.value_bytes < 80


def test_an_estimate_with_a_sample_takes_its_sizes_and_compression_from_it(visits: Path) -> None:
    document = json.loads(tidelog(*JOB, "--sample", visits, "--json").stdout)
    workload = document["workload"]
    assert workload["value_bytes"] == sampled(read_values(visits), 16, 1_000).value_bytes
    assert workload["compression"] < 0.5
    assert workload["state_bytes"] < 100_000 * (4 + 16 + workload["value_bytes"])
    said = json.loads(tidelog(*JOB, "--sample", visits, "--value-bytes", "4KB", "--json").stdout)[
        "workload"
    ]
    assert said["value_bytes"] == 4_000


def test_a_sample_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    path.write_text("one\ntwo\n")
    with pytest.raises(ConfigError, match=r"100 lines or more.*2 in its first"):
        read_values(path)
