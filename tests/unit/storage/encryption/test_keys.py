"""Where keys come from, and what a wrong one says."""

import base64
import logging
from pathlib import Path

import pytest

from tidelog.effects import Effects, InlineOffload
from tidelog.errors import ConfigError
from tidelog.options.kinds import KeyPlace
from tidelog.storage.encryption.keys import key_id, key_line, key_source

EFFECTS = Effects(offload=InlineOffload())
FIRST, SECOND = b"1" * 32, b"2" * 32


def key_file(path: Path, *keys: bytes, mode: int = 0o600) -> str:
    path.write_text("# a comment\n\n" + "".join(f"{key_line(key)}\n" for key in keys))
    path.chmod(mode)
    return str(path)


async def test_the_first_key_of_a_file_wraps_and_every_one_opens(tmp_path: Path) -> None:
    old = key_source(key_file(tmp_path / "old", FIRST), EFFECTS)
    both = key_source(key_file(tmp_path / "both", SECOND, FIRST), EFFECTS)
    wrapped = await old.wrap(b"s" * 32, "context")
    assert await both.unwrap(wrapped, "context") == b"s" * 32
    newer = await both.wrap(b"s" * 32, "context")
    assert newer.by == f"local:{key_id(SECOND)}"
    assert await old.unwrap(newer, "context") is None
    assert await both.unwrap(wrapped, "another context") is None


async def test_a_key_can_be_in_the_environment_or_come_from_openssl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_KEY", base64.b64encode(FIRST).decode())
    path = tmp_path / "key"
    path.write_text(base64.b64encode(FIRST).decode() + "\n")
    path.chmod(0o600)
    wrapped = await key_source("env:STATE_KEY", EFFECTS).wrap(b"s" * 32, "context")
    assert await key_source(f"file:{path}", EFFECTS).unwrap(wrapped, "context") == b"s" * 32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found none"),
        ("# nothing but a comment\n", "found none"),
        ("secret-but-no-key", "a line of 17 characters that is not"),
        (base64.b64encode(b"31 bytes are too few for a key!").decode(), "44 characters"),
        (base64.b64encode(FIRST).decode() + "\nmore", "a line of 4 characters"),
    ],
)
def test_a_file_without_a_key_is_an_error_that_does_not_show_what_is_in_it(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        key_source(str(path), EFFECTS)
    assert "secret" not in str(caught.value)


def test_a_missing_file_or_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"absent.*No such file.*tidelog key new"):
        key_source(str(tmp_path / "absent"), EFFECTS)
    monkeypatch.delenv("NO_KEY", raising=False)
    with pytest.raises(ConfigError, match="environment variable NO_KEY"):
        key_source("env:NO_KEY", EFFECTS)
    with pytest.raises(ConfigError, match="aws-kms: and the id"):
        key_source("aws-kms:", EFFECTS)


def test_a_key_file_that_others_can_read_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        key_source(key_file(tmp_path / "closed", FIRST), EFFECTS)
        assert not caplog.records
        key_source(key_file(tmp_path / "open", FIRST, mode=0o644), EFFECTS)
    assert "0644" in caplog.text
    assert key_line(FIRST) not in caplog.text


@pytest.mark.parametrize("text", [key_line(FIRST), FIRST.hex()])
def test_a_key_in_the_place_of_its_place_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match="a key itself") as caught:
        KeyPlace().read(text)
    assert text not in str(caught.value)


def test_a_key_that_was_read_is_masked_wherever_it_would_be_shown(tmp_path: Path) -> None:
    key = b"7" * 32
    key_source(key_file(tmp_path / "key", key), EFFECTS)
    shown = ConfigError(f"a library said {key_line(key)}", action="look away")
    assert key_line(key) not in str(shown) and "***" in str(shown)
