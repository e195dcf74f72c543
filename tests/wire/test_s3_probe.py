"""The probe, against servers that keep their promises and servers that do not."""

import asyncio
from contextlib import closing
from dataclasses import replace

import pytest

from tests.wire.calls import IMPATIENT
from tests.wire.proxy import Behaviour, proxy
from tests.wire.servers import S3Server, free_port
from tidelog.effects import Effects
from tidelog.storage.open import open_store
from tidelog.storage.probe import ProbeReport, probe_store
from tidelog.storage.retry_policy import RetryPolicy


def probe(server: S3Server, policy: RetryPolicy | None = None) -> ProbeReport:
    async def main() -> ProbeReport:
        effects = Effects()
        url = server.url("probed")
        stores = [open_store(url, effects, policy=policy, options=server.options) for _ in range(4)]
        try:
            return await probe_store(stores, effects, racers=16, rounds=5)
        finally:
            for store in stores:
                await store.close()

    return asyncio.run(main())


def failed(report: ProbeReport) -> set[str]:
    return {check.name for check in report.checks if not check.passed}


def leftovers(server: S3Server) -> int:
    with closing(server.client()) as client:
        count: int = client.list_objects_v2(Bucket=server.bucket, Prefix="probed/")["KeyCount"]
        return count


def test_an_honest_server_passes_and_is_left_clean(versitygw: S3Server) -> None:
    report = probe(versitygw)
    assert failed(report) == set()
    assert leftovers(versitygw) == 0
    assert {latency.operation for latency in report.latencies} == {
        "put",
        "create",
        "get",
        "head",
        "list",
        "delete",
    }


@pytest.mark.parametrize("server", ["moto", "ministack"])
def test_a_server_that_checks_and_then_writes_fails_in_the_race_if_anywhere(
    server: str, request: pytest.FixtureRequest
) -> None:
    """Whether the race is lost depends on the server's threads; everything else must pass."""
    running: S3Server = request.getfixturevalue(server)
    report = probe(running)
    assert failed(report) <= {"create race"}
    assert leftovers(running) == 0
    for check in report.checks:
        assert check.passed or "racing creates of one name won" in check.message


def test_a_server_that_ignores_conditions_is_found_out(moto: S3Server) -> None:
    with proxy(moto.endpoint, Behaviour(ignore_conditions=True)) as endpoint:
        report = probe(replace(moto, endpoint=endpoint))
    assert failed(report) == {"refuse overwrite", "create race"}
    messages = " ".join(check.message for check in report.checks)
    assert "ignores If-None-Match" in messages
    assert "16 of 16 racing creates" in messages


def test_a_server_that_is_not_there_fails_the_first_check_with_the_reason() -> None:
    nobody = S3Server("nobody", f"http://127.0.0.1:{free_port()}", "k", "s", honest=True)
    report = probe(nobody, IMPATIENT)
    assert [check.name for check in report.checks] == ["reach", "clean up"]
    assert "endpoint" in report.checks[0].message
