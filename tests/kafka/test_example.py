"""The word count over Kafka of the README."""

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.kafka import Topics
from tidelog.examples import kafka_wordcount


def test_a_word_count_that_is_killed_counts_as_a_plain_count_does(
    topics: Topics, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--bootstrap", topics.bootstrap, "--topic", "words", "--megabytes", "4"]
    done = CliRunner().invoke(kafka_wordcount.main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, (done.output, capfd.readouterr().err)
    assert "words, each as often as a plain count says" in done.output
    assert "it goes on from the last one" in done.output
    assert "words" not in topics.admin.list_topics(timeout=10).topics


def test_wrong_counts_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "part-0").write_text('{"word":"tide","count":2}\n' * 2)
    assert not kafka_wordcount._compare(Counter(tide=3), tmp_path)
    shown = capsys.readouterr().out
    assert "'tide': 2, a plain count says 3" in shown
    assert "WRONG: 1 words, and 1 lines too many" in shown


def test_a_topic_that_is_there_already_is_left_alone(topics: Topics) -> None:
    topic = topics.new()
    arguments = ["--bootstrap", topics.bootstrap, "--topic", topic]
    done = CliRunner().invoke(kafka_wordcount.main, arguments)
    assert done.exit_code == 2 and "already exists" in done.output
    assert topic in topics.admin.list_topics(timeout=10).topics
