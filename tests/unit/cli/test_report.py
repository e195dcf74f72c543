"""`tidelog report` writes the operators' page as one file."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.damage import damaged, flipped
from tests.support.jobs import filled
from tests.support.running import running_job
from tidelog.effects import Effects
from tidelog.runtime.control.address import DIRECTORY_VARIABLE
from tidelog.storage.open import open_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "store", filled())


def embedded(page: Path) -> Any:
    """The document in a page."""
    data = page.read_text().partition('type="application/json" id="document">')[2]
    return json.loads(data.partition("</script>")[0])


def test_it_writes_one_file_and_nothing_into_the_store(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    result = tidelog("report", store, "--output", target)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{target}: {target.stat().st_size / 1e6:.2f} MB\n"
    assert files(store) == filled()
    document = embedded(target)
    assert (document["job"], document["url"]) == ("every-kind", store.as_uri())
    assert document["live"] is None


def test_as_json_it_says_what_it_wrote(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    shown = json.loads(tidelog("report", store, "--output", target, "--json").stdout)
    size = target.stat().st_size
    assert shown == {"url": store.as_uri(), "output": str(target), "bytes": size, "problems": 0}
    guide = (Path(__file__).parents[3] / "docs" / "reference" / "cli-json.md").read_text()
    section = guide.partition("## tidelog ui, tidelog report")[2].partition("\n## ")[0]
    assert {name for name in {*shown, "page"} if f"`{name}`" not in section} == set()


def test_a_file_that_is_there_is_replaced(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("older")
    assert tidelog("report", store, "--output", target).exit_code == 0
    assert embedded(target)["job"] == "every-kind"


def test_the_file_is_report_html_unless_named(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tidelog("report", store).exit_code == 0
    assert embedded(tmp_path / "report.html")["job"] == "every-kind"


def test_a_missing_directory_is_an_error_that_says_what_to_do(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "missing" / "page.html"
    result = tidelog("report", store, "--output", target)
    assert result.exit_code == 2
    assert f"--output {target}; expected a file that can be written" in result.stderr
    assert "found No such file or directory. Next: choose another path" in result.stderr


def test_a_store_without_a_job_is_an_error_and_no_file(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    result = tidelog("report", tmp_path / "typo", "--output", target)
    assert result.exit_code == 1
    assert "found none. Next: check the URL" in result.stderr
    assert not target.exists() and not (tmp_path / "typo").exists()


def test_a_store_that_cannot_be_reached_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    result = tidelog("report", tmp_path / "file", "--output", tmp_path / "page.html")
    assert result.exit_code == 1
    assert "Next: " in result.stderr and "Traceback" not in result.stderr


def test_damage_is_told_and_the_page_is_written(tmp_path: Path) -> None:
    name = "checkpoints/00000009.json"
    store = lay_out(tmp_path / "store", damaged(filled(), name, flipped))
    target = tmp_path / "page.html"
    result = tidelog("report", store, "--output", target)
    assert result.exit_code == 1
    assert name in result.stdout and "  next: bring the object back from a backup" in result.stdout
    [problem] = embedded(target)["problems"]
    assert problem["where"] == name


def test_beside_a_running_job_it_has_its_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects, target = Effects(), tmp_path / "page.html"
    store = open_store(str(tmp_path / "store"), effects)
    with tempfile.TemporaryDirectory(prefix="tlc") as sockets:
        monkeypatch.setenv(DIRECTORY_VARIABLE, sockets)
        with running_job(store, tmp_path / "work"):
            result = tidelog("report", tmp_path / "store", "--output", target)
    effects.offload.close()
    assert target.exists(), result.output
    document = embedded(target)
    assert document["phase"] == "running"
    rates = [operator["records_per_s"] for operator in document["live"]["now"]]
    assert rates and None not in rates and max(rates) > 0
    assert [point for point in document["checkpoints"] if point["phases"] is not None]
