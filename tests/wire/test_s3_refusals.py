"""What a user sees when an S3 server refuses: at a start, in a running job, and when it is mended.

What the servers here cannot do (expire credentials, compare clocks, be elsewhere) a proxy answers
in their place, with S3's documented status and code.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from tests.process.harness import Run, killed_at_last, wait_until
from tests.support.cli import tidelog
from tests.support.depth import more_in_depth
from tests.unit.storage.conformance import opened
from tests.wire.calls import call
from tests.wire.proxy import Behaviour, Exchange, proxy
from tests.wire.servers import S3Server
from tidelog import (
    AccessDeniedError,
    ConfigError,
    RetryPolicy,
    TidelogError,
    UnavailableError,
    open_store,
)
from tidelog.storage.config import S3Client

_prefixes = count()
AGENTS = {"obstore": "object_store", "s3fs": "aiobotocore"}
"""What the clients call themselves in requests."""


@dataclass(frozen=True)
class Refusal:
    """An answer of S3, and what the user is told."""

    status: int
    code: str
    message: str
    kind: type[TidelogError]
    what: str
    expected: str
    action: str

    @property
    def exit_code(self) -> int:
        return 2 if self.kind is ConfigError else 1


REFUSALS = [
    Refusal(
        *(400, "ExpiredToken", "The provided token has expired."),
        *(AccessDeniedError, "object s3://", "have not expired", "get new credentials"),
    ),
    Refusal(
        *(403, "AccessDenied", "User: arn:aws:iam::1:user/me is not authorized to perform: s3:Put"),
        *(AccessDeniedError, "object s3://", "permission", "check the credentials"),
    ),
    Refusal(
        *(404, "NoSuchBucket", "The specified bucket does not exist"),
        *(UnavailableError, "store s3://", "an existing bucket", "create the bucket"),
    ),
    Refusal(
        *(403, "RequestTimeTooSkewed", "The difference between the request time and the current"),
        *(AccessDeniedError, "object s3://", "a clock", "set this machine's clock"),
    ),
    Refusal(
        *(301, "PermanentRedirect", "the bucket must be addressed at its own endpoint"),
        *(ConfigError, "region of s3://", "the bucket's own", "AWS_DEFAULT_REGION"),
    ),
    Refusal(
        *(400, "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong"),
        *(ConfigError, "region of s3://", "the bucket's own", "AWS_DEFAULT_REGION"),
    ),
    Refusal(
        *(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist"),
        *(AccessDeniedError, "object s3://", "an access key", "AWS_ACCESS_KEY_ID"),
    ),
    Refusal(
        *(403, "SignatureDoesNotMatch", "The request signature we calculated does not match"),
        *(AccessDeniedError, "object s3://", "the secret key", "AWS_SECRET_ACCESS_KEY"),
    ),
    Refusal(
        *(400, "InvalidToken", "The provided token is malformed or otherwise invalid."),
        *(AccessDeniedError, "object s3://", "a session token", "AWS_SESSION_TOKEN"),
    ),
]
each_refusal = pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.code)
EITHER_KIND = more_in_depth(REFUSALS[1:3], REFUSALS)
"""One refusal of each class of errors: what the others say is tried without a process."""


@pytest.fixture
def refusing(moto: S3Server, behaviour: Behaviour) -> Iterator[S3Server]:
    """moto behind a proxy that refuses what `behaviour` says."""
    with proxy(moto.endpoint, behaviour) as endpoint:
        yield replace(moto, endpoint=endpoint)


def refuse(behaviour: Behaviour, refusal: Refusal) -> None:
    behaviour.message = refusal.message
    behaviour.headers = {"x-amz-bucket-region": "eu-west-1"}  # as S3 says with most refusals
    behaviour.error = lambda exchange: (refusal.status, refusal.code)


Jobs = Callable[..., tuple[Run, list[str]]]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Jobs]:
    """Makes a job on a server that copies lines and waits before the last ones; and the lines."""
    with ExitStack() as clients:

        def made(server: S3Server, *options: str) -> tuple[Run, list[str]]:
            url = server.url(f"refused/{next(_prefixes)}")
            prefix = url.removeprefix(f"s3://{server.bucket}/") + "/checkpoints/"
            # One for all looks: a new one takes longer than the job does for a checkpoint.
            client = clients.enter_context(closing(server.client()))

            def slots() -> list[str]:
                found = client.list_objects_v2(Bucket=server.bucket, Prefix=prefix)
                return [item["Key"] for item in found.get("Contents", ())]

            run = Run(tmp_path, "tests.process.jobs:copy", options, url, server.env, slots)
            lines = [f"line {number} of {file}" for file in range(3) for number in range(500)]
            for file in range(3):
                text = "".join(f"{line}\n" for line in lines[file * 500 : (file + 1) * 500])
                (run.input / f"{file}.txt").write_text(text)
            return run, lines

        yield made


def check_told(text: str, refusal: Refusal) -> None:
    """The last error has all that a user needs."""
    error = text[text.rindex("Error: ") :]
    for part in (refusal.what, refusal.expected, refusal.code, refusal.message, refusal.action):
        assert part in error, error
    assert "(a retry is safe)" in error
    assert "Traceback" not in text, text


def check_goes_on(run: Run, lines: list[str]) -> None:
    """The same command ends well, and what it leaves is right."""
    run.release()
    run.finish()
    assert sorted(run.lines()) == sorted(lines)
    checked = tidelog("inspect", run.store, "--deep", env=run.env)
    assert checked.exit_code == 0, checked.output


@each_refusal
async def test_the_error_says_what_was_refused_why_and_what_to_do(
    refusing: S3Server, s3_client: S3Client, behaviour: Behaviour, refusal: Refusal
) -> None:
    refuse(behaviour, refusal)
    policy, url = RetryPolicy(deadline=5.0), refusing.url("refused")
    opener = partial(open_store, url, policy=policy, options=refusing.options)
    async with opened(opener) as store:
        for operation in ("put", "create", "get", "list"):
            with pytest.raises(TidelogError) as raised:
                await call(store, operation)
            error = raised.value
            assert type(error) is refusal.kind, operation
            assert error.what.startswith(refusal.what) and "s3://tide/refused" in error.what
            assert refusal.expected in error.expected
            assert f"HTTP {refusal.status} {refusal.code}: {refusal.message}" in error.found
            assert refusal.action in error.action and error.retry_safe
    assert {exchange.agent for exchange in behaviour.seen} == {AGENTS[s3_client]}


def test_a_running_job_that_is_refused_ends_and_the_same_command_goes_on(
    job: Jobs, refusing: S3Server, s3_client: S3Client, behaviour: Behaviour
) -> None:
    run, lines = job(refusing, "--tolerable-failures", "2")
    committed: list[str] = []
    for refusal in EITHER_KIND:
        begun = run.slots()
        with killed_at_last(run.start()) as process:
            wait_until(lambda begun=begun: run.slots() > begun + 3, process)  # type: ignore[misc]
            refuse(behaviour, refusal)
            refused = run.end(process)
        assert refused.returncode == refusal.exit_code, refused.stderr
        check_told(refused.stderr, refusal)
        behaviour.error = lambda exchange: None
        assert run.slots() > begun + 3
        assert set(committed) <= set(run.lines()), "what was committed stays"
        committed = run.lines()
        assert len(committed) < len(lines)
    check_goes_on(run, lines)
    assert set(committed) <= set(run.lines())
    writers = {exchange.agent for exchange in behaviour.seen if exchange.method == "PUT"}
    assert writers == {AGENTS[s3_client]}


def test_a_running_job_takes_the_credentials_that_its_provider_renews(
    tmp_path: Path, job: Jobs, refusing: S3Server, s3_client: S3Client, behaviour: Behaviour
) -> None:
    """A profile with a credential_process stands for roles and instances, which expire, too."""
    profile, current = tmp_path / "config", tmp_path / "current.json"

    def give(key: str) -> None:
        soon = datetime.now(UTC) + timedelta(minutes=5)
        fields = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": "secret-of-" + key}
        fields |= {"SessionToken": "token-of-" + key, "Expiration": soon.isoformat()}
        written = current.with_suffix(".new")
        written.write_text(json.dumps(fields))
        written.replace(current)

    def old_is_refused(exchange: Exchange) -> tuple[int, str] | None:
        return (400, "ExpiredToken") if exchange.key == "OLDKEY" else None

    profile.write_text(f"[default]\nregion = us-east-1\ncredential_process = /bin/cat {current}\n")
    give("OLDKEY")
    run, lines = job(refusing, "--tolerable-failures", "1000000")
    run.env = {
        "AWS_ENDPOINT_URL": refusing.endpoint,
        "AWS_CONFIG_FILE": str(profile),
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }
    with killed_at_last(run.start()) as process:
        wait_until(lambda: run.slots() > 3, process)
        behaviour.error = old_is_refused
        refusals = len(behaviour.seen)
        wait_until(lambda: len(behaviour.seen) > refusals + 20, process)
        slots = run.slots()
        give("NEWKEY")
        wait_until(lambda: run.slots() > slots + 2, process)
        run.release()
        done = run.end(process)
    assert done.returncode == 0, done.stderr
    assert "ExpiredToken" in done.stderr, "it was refused meanwhile"
    assert sorted(run.lines()) == sorted(lines)
    for secret in ("secret-of", "token-of"):
        assert secret not in done.stdout + done.stderr
