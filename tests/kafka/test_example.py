"""The word count over Kafka of the README."""

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.kafka import Topics, reason_without
from tidelog.examples import kafka_wordcount


def test_a_word_count_that_is_killed_counts_as_a_plain_count_does(
    topics: Topics, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--bootstrap", topics.bootstrap, "--topic", "words", "--megabytes", "4"]
    arguments += ["--directory", str(tmp_path)]
    done = CliRunner().invoke(kafka_wordcount.main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, (done.output, capfd.readouterr().err)
    assert "words, each as often as a plain count says" in done.output
    assert "it goes on from the last one" in done.output
    assert "words" not in topics.admin.list_topics(timeout=10).topics


def test_wrong_counts_are_shown_and_end_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = reason_without()
    if reason is not None:
        pytest.skip(reason)
    (tmp_path / "counts").mkdir()
    (tmp_path / "counts" / "part-0").write_text('{"word":"tide","count":2}\n')

    def leave(*_: object, **__: object) -> None:
        (tmp_path / "counts").mkdir()
        (tmp_path / "counts" / "part-0").write_text('{"word":"tide","count":2}\n' * 2)

    monkeypatch.setattr(kafka_wordcount, "_write", lambda *_: Counter(tide=3))
    monkeypatch.setattr(kafka_wordcount, "_count", leave)
    monkeypatch.setattr(kafka_wordcount, "_remove", lambda *_: None)
    arguments = ["--bootstrap", "127.0.0.1:1", "--directory", str(tmp_path)]
    done = CliRunner().invoke(kafka_wordcount.main, arguments)
    assert done.exit_code == 1
    assert "'tide': 2, a plain count says 3" in done.output
    assert "WRONG: 1 words, and 1 lines too many" in done.output


def test_a_topic_that_is_there_already_is_left_alone(topics: Topics) -> None:
    topic = topics.new()
    arguments = ["--bootstrap", topics.bootstrap, "--topic", topic]
    done = CliRunner().invoke(kafka_wordcount.main, arguments)
    assert done.exit_code == 2 and "already exists" in done.output
    assert topic in topics.admin.list_topics(timeout=10).topics
