"""No secret is in a URL that is used, nor in the text of an error, a log record or a traceback."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cli import tidelog
from tidelog import ConfigError, StorageError, credentials, open_store
from tidelog.catalog.locate import parse_origin
from tidelog.credentials import hide, holds_secret, masked
from tidelog.events import Event

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCY"
WITH_SECRETS = [
    f"s3://AKIAEXAMPLE:{SECRET}@bucket/jobs/a",
    f"s3://:{SECRET}@bucket",
    f"sftp://user:{SECRET}@host:22/dir",
    f"simplecache::sftp://user:{SECRET}@host/dir",
    f"http://user:a@{SECRET}@host/dir",
    f"abfs://container/dir?sv=2024&sig={SECRET}",
    f"https://host/bucket?X-Amz-Security-Token={SECRET}&x=1",
    f"postgresql://host/db?password={SECRET}",
]


@pytest.fixture(autouse=True)
def hidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test hides is hidden in no other."""
    monkeypatch.setattr(credentials, "_hidden", set())
    yield


@pytest.mark.parametrize("url", WITH_SECRETS)
def test_a_url_with_credentials_is_refused_and_not_shown(url: str) -> None:
    assert holds_secret(url)
    for open_it in (
        lambda: open_store(url),
        lambda: open_store("memory://tables", log_url=url),
        lambda: open_store("s3://bucket", options={"endpoint_url": url}),
        lambda: parse_origin(f"{url}@latest"),
        lambda: parse_origin(url),
    ):
        with pytest.raises(ConfigError, match="open_store") as raised:
            open_it()
        assert SECRET not in str(raised.value) + repr(raised.value)
        assert raised.value.found == "a password or a token in it"


def test_an_endpoint_of_the_environment_has_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://user:{SECRET}@127.0.0.1:9000")
    with pytest.raises(ConfigError, match=r"AWS_ENDPOINT_URL 'http://\*\*\*@127.0.0.1:9000'"):
        open_store("s3://bucket")


def test_the_values_of_secret_options_are_masked_wherever_they_stand() -> None:
    hide(
        {
            "key": "AKIAEXAMPLE",
            "secret": SECRET,
            "sas_token": "sv=2024-token",
            "connection_string": "Endpoint=x;Key=y",
            "client_kwargs": {"aws_session_token": "session-of-today"},
            "region": "eu-west-1",
            "token_path": "/run/secrets/token",
            "AWS_SHARED_CREDENTIALS_FILE": "/home/me/.aws/credentials",
            "password": "short",
            "credential": object(),
        }
    )
    shown = masked(f"a {SECRET} b AKIAEXAMPLE c sv=2024-token d Endpoint=x;Key=y session-of-today")
    assert shown == "a *** b *** c *** d *** ***"
    kept = "eu-west-1 /run/secrets/token /home/me/.aws/credentials a short text"
    assert masked(kept) == kept


def test_a_store_hides_its_options_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-of-today")
    open_store("s3://bucket", options={"key": "k", "secret": SECRET})
    error = StorageError("it", found=f"<Token>session-of-today</Token> {SECRET}", action="none")
    assert error.found == "<Token>***</Token> ***"


def test_a_log_record_has_no_secret_in_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    cause = OSError(f"cannot reach http://user:{SECRET}@host")
    Event.CONTROL_UNAVAILABLE.log(logging.getLogger("tidelog.test"), error=cause)
    [record] = caplog.records
    assert record.args == {"error": "cannot reach http://***@host"}


def test_a_properties_file_is_not_quoted(tmp_path: Any) -> None:
    properties = tmp_path / "spark-defaults.conf"
    properties.write_text(f"spark.hadoop.fs.s3a.access.key me\n{SECRET}\n")
    done = tidelog("spark", "check", "--properties-file", properties)
    assert done.exit_code == 2 and "line 2" in done.output
    assert SECRET not in done.output
