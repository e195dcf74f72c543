"""Jobs by their names; `tidelog run` on a store with another job, other operators or key groups."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.cli import count_words, files, lay_out, tidelog
from tests.support.jobs import WORDS, contents, restarted, run_until_break, word_count
from tidelog import ConfigError, Job, JobArguments
from tidelog.cli.run.definition import load_job
from tidelog.storage.memory import MemoryStore

MODULE = """
from tidelog.runtime.graph import Job

job = Job("plain")


def build():
    return Job("built")


def build_with(arguments):
    return Job(arguments.input)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with modules in it that are forgotten afterwards."""
    (tmp_path / "my_job_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def test_a_job_is_found_by_its_examples_name_or_in_a_module_here_or_in_a_file(here: Path) -> None:
    words = JobArguments(input="words.txt")
    for attribute, name in (("job", "plain"), ("build", "built")):
        assert load_job(f"my_job_module:{attribute}", JobArguments()).name == name
    assert load_job("my_job_module:build_with", words).name == "words.txt"
    file = here / "jobs" / "in_a_file.py"
    file.parent.mkdir()
    file.write_text(MODULE)
    for path in ("jobs/in_a_file.py", file):
        assert load_job(f"{path}:build_with", words).name == "words.txt"
    (here / "jobs" / "v1.2.py").write_text(MODULE)
    (here / "newest.py").symlink_to(here / "jobs" / "v1.2.py")
    for path in ("jobs/v1.2.py", "newest.py"):
        assert load_job(f"{path}:build_with", words).name == "words.txt"
    for example in ("wordcount", "sessions"):
        assert load_job(example, JobArguments(input=str(here))).name == example


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("my_job_module", "module:attribute"),
        (":job", "module:attribute"),
        ("my_job_module:", "module:attribute"),
        ("nowhere.py:job", "no module 'nowhere'"),
        ("my_job_module.sub:job", "no module 'my_job_module.sub'"),
    ],
)
def test_what_is_no_job_is_refused_with_its_name(here: Path, name: str, says: str) -> None:
    """Modules without such a job are tried by tests/faults/test_command_line.py."""
    with pytest.raises(ConfigError, match=says):
        load_job(name, JobArguments())


@pytest.mark.parametrize("attribute", ["job", "build"])
def test_options_that_a_job_does_not_read_are_refused(here: Path, attribute: str) -> None:
    with pytest.raises(ConfigError, match=r"--input, --follow; .*which takes none\. Next: leave"):
        load_job(f"my_job_module:{attribute}", JobArguments(input="words.txt", follow=True))


def test_a_job_is_found_from_a_directory_that_is_gone(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "gone").mkdir()
    monkeypatch.chdir(here / "gone")
    (here / "gone").rmdir()
    assert load_job("wordcount", JobArguments(input=str(here))).name == "wordcount"


def test_a_file_that_is_called_as_another_module_is_refused_by_that(here: Path) -> None:
    (here / "queue.py").write_text(MODULE)
    with pytest.raises(ConfigError, match=r"found module 'queue', which .*Next: rename the file"):
        load_job("queue.py:job", JobArguments())


FEW = WORDS[:100]


def renamed() -> Job:
    """The word count, its aggregate under another name."""
    return word_count(FEW, name="total")


def another() -> Job:
    """A job like it."""
    job = word_count(FEW)
    job.name = "another"
    return job


def whole() -> Job:
    """The word count to its end."""
    return word_count()


@pytest.fixture
def broken_store(tmp_path: Path) -> Path:
    """The store of a word count that broke half way."""
    broken = MemoryStore()
    run_until_break(broken, word_count(FEW, 60))
    return lay_out(tmp_path / "store", contents(broken))


def run(job: str, store: Path, *options: str) -> Result:
    module = "tests.unit.cli.test_run_arguments"
    return tidelog("run", f"{module}:{job}", "--store", store, "--key-groups", "16", *options)


def test_dropped_state_needs_leave_and_stands_in_the_report(broken_store: Path) -> None:
    before = files(broken_store)
    refused = run("renamed", broken_store)
    assert refused.exit_code == 1
    assert "--allow-non-restored-state count" in refused.output
    assert files(broken_store) == before, "the running job is not fenced"
    done = run("renamed", broken_store, "--allow-non-restored-state", "count", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["dropped_state"] == ["state 'aggregate' of operator 'count'"]


def test_the_store_of_a_job_of_another_name_is_left_alone(
    broken_store: Path, tmp_path: Path
) -> None:
    before = files(broken_store)
    refused = run("another", broken_store)
    assert refused.exit_code == 1
    assert "expected job 'word-count', whose checkpoints the store has" in refused.output
    assert files(broken_store) == before
    taken = run("another", tmp_path / "own", "--from", f"{broken_store}@latest")
    assert taken.exit_code == 0, taken.output


def test_what_a_checkpoint_has_fixed_is_told_before_the_running_job_is_fenced(text: Path) -> None:
    store = text.parent / "store"
    assert count_words(text, "--key-groups", "2").exit_code == 0
    before = files(store)
    refused = count_words(text, "--key-groups", "4", "--parallelism", "3")
    assert refused.exit_code == 1
    assert "key groups of 'source'" in refused.output
    assert "set --key-groups 2" in refused.output
    assert files(store) == before


def test_an_option_without_its_word_does_not_take_the_next_option_for_it(tmp_path: Path) -> None:
    store = ["--store", str(tmp_path / "store")]
    told = tidelog("run", "wordcount", *store, "--unaligned", "--checkpoint-interval", "300ms")
    assert told.exit_code == 2
    assert "'--checkpoint-interval' is not one of 'off', 'timeout', 'always'" in told.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("run wordcount --checkpoint-interval", "a time with its unit, such as 250 ms or 2 min"),
        ("run wordcount --memory", "Expected a size such as 64 MiB; from 32 MiB to 4 TiB."),
        ("run wordcount --report-interval", "Write 500ms, 1s, 1.5m or 2h."),
        ("plan --value-bytes", "Write 200, 500MB or 2GiB."),
        ("plan --join", "Write -1m,5m or 0s,30s."),
        ("plan --parallelism", "requires an argument.\n"),
    ],
)
def test_an_option_without_its_value_says_how_that_is_written(arguments: str, says: str) -> None:
    result = tidelog(*arguments.split())
    option = arguments.rsplit(maxsplit=1)[-1]
    assert result.exit_code == 2
    assert f"Option '{option}' requires an argument." in result.stderr and says in result.stderr


TYPED = """
from dataclasses import dataclass, field
from datetime import date

from tidelog import Job


@dataclass(frozen=True)
class Arguments:
    input: str
    country: str
    since: date = date(2024, 1, 1)
    top_n: int = 3
    dry: bool = False
    tags: list[str] = field(default_factory=list)


def typed(arguments: Arguments) -> Job:
    a = arguments
    return Job(f"{a.input} {a.country} {a.since.year} {a.top_n + 1} {a.dry} {','.join(a.tags)}")


def listed(arguments):
    return Job(" ".join(arguments.own))
"""


@pytest.fixture
def typed_job(tmp_path: Path) -> str:
    (tmp_path / "typed_arguments.py").write_text(TYPED)
    sys.modules.pop("typed_arguments", None)
    return f"{tmp_path}/typed_arguments.py"


def test_a_job_has_arguments_of_its_own_in_a_dataclass(typed_job: str) -> None:
    own = ("--country", "nl", "--since", "2025-01-01", "--top-n", "5", "--dry", "--tags", "a", "b")
    arguments = JobArguments(input="orders", own=own)
    assert load_job(f"{typed_job}:typed", arguments).name == "orders nl 2025 6 True a,b"
    arguments = JobArguments(input="orders", own=("--country", "at"))
    assert load_job(f"{typed_job}:typed", arguments).name == "orders at 2024 4 False "


def test_a_job_without_annotation_gets_its_own_arguments_as_a_list(typed_job: str) -> None:
    arguments = JobArguments(own=("--country", "nl"))
    assert load_job(f"{typed_job}:listed", arguments).name == "--country nl"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (JobArguments(own=("--country", "nl")), "option --input; expected a value"),
        (
            JobArguments(input="orders", output="sums", own=("--country", "nl")),
            "option --output; expected a field 'output' of Arguments",
        ),
        (
            JobArguments(input="orders", own=("--country", "nl", "--top-n", "few")),
            r"Arguments; .*found Expected `int`, got `str` - at `\$\.top_n`",
        ),
    ],
)
def test_arguments_that_do_not_fit_the_dataclass_are_refused(
    arguments: JobArguments, says: str, typed_job: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        load_job(f"{typed_job}:typed", arguments)


def test_the_command_hands_what_follows_two_dashes_to_the_job(
    typed_job: str, tmp_path: Path
) -> None:
    run = ("run", f"{typed_job}:typed", "--store", tmp_path / "store", "--input", "orders", "--")
    wrong = tidelog(*run, "--nation", "nl")
    assert wrong.exit_code == 2 and "--country" in wrong.output
    listed = tidelog(*run, "--help")
    assert listed.exit_code == 0 and "default: 2024-01-01" in listed.output


def test_arguments_of_a_job_that_takes_none_are_refused(here: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--country nl; .*which takes none\. Next: leave"):
        load_job("my_job_module:job", JobArguments(own=("--country", "nl")))


def test_a_checkpoint_has_one_number_in_lists_options_lines_and_reports(tmp_path: Path) -> None:
    store = lay_out(tmp_path / "store", contents(restarted(word_count)))
    listed = json.loads(tidelog("checkpoints", "list", store, "--json").stdout)
    rows = [row for row in listed["checkpoints"] if row["kind"] == "checkpoint"]
    number = rows[-2]["checkpoint"]
    assert rows[-2]["attempt"] != number, "attempts are counted apart"
    shown = tidelog("checkpoints", "show", store, str(number)).stdout
    assert shown.startswith(f"checkpoint {number} of job ")
    page = tmp_path / "page.html"
    assert tidelog("report", store, "--output", page).exit_code == 0
    assert f'"checkpoint":{number},' in page.read_text()
    copy = tmp_path / "copy"
    assert tidelog("clone", f"{store}@{number}", copy).exit_code == 0
    assert f"running from checkpoint {number} " in run("whole", copy).stderr
    done = run("whole", store, "--restore-checkpoint", str(number), "--json")
    assert json.loads(done.stdout.splitlines()[-1])["restored_checkpoint"] == number
