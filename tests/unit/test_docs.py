"""The documentation: a site without a broken link, and names that exist."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import griffe
import pytest

import tidelog
import tidelog.spark
from tests.support.documentation import BLOCKS, ROOT
from tests.support.pages import MADE, REFERENCE
from tests.support.signatures import Signatures
from tidelog.runtime.status.series import SERIES
from tidelog.settings import OPTIONS, resolve

PAGE = REFERENCE / "configuration.md"
PROOFS = ROOT / "docs" / "internals" / "proofs.md"
README = ROOT / "README.md"
WORDS_IN_A_RECORD, WORDS_OF_BENCHMARKS, WORDS_OF_README = 800, 2_500, 900
LINES_BEFORE_CODE = 40
GROUPS = {"Write": "Write a job", "Run": "Run it", "Understand": "Understand it"}
"""Groups of guides: their names in the navigation, and their headings on the home page."""
PUBLIC = {*tidelog.__all__, "open", *(f"spark.{name}" for name in tidelog.spark.__all__)}
"""Public names, without `tidelog.` in front."""
OF_THE_LIBRARY = {
    *(f"Checkpoint.{name}" for name in ("author", "layers", "materializations", "operators")),
    *("Checkpoint.before_end", "Checkpoint.stored_subtasks"),
    *("Checkpoint.subtasks", "Count.aggregate", "Count.records", "CsvSource.columns"),
    *(
        "InputFiles.wake_when_changed",
        "KafkaSource.cluster",
        "KafkaSource.decoder",
        "Job.nodes",
        "JobConfig.memory_parts",
        "JobRunner.states",
    ),
    *("JobRunner.incarnation", "ObjectStore.request_metrics", "RocksDBConfig.within"),
    *("Session.aggregate", "Session.records", "WindowedStream.__init__", "_Spans.aggregate"),
    *("ObjectStore.apart", "_Spans.records", "_Spans.span", "open.open_store"),
}
"""Members of public classes that the library alone uses: their types need no public name."""


def test_the_site_is_built_without_a_broken_link(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "reference" / "api" / "index.html").read_text()
    shown = set(re.findall(r'id="tidelog\.((?:spark\.)?\w+)"', page)) - {"spark"}
    assert shown == PUBLIC, "docs/reference/api.md lists the public names"


def test_every_document_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text())
    assert links and [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_is_short_and_begins_with_code() -> None:
    text = README.read_text()
    assert len(text.split()) <= WORDS_OF_README
    assert text.partition("```python")[0].count("\n") < LINES_BEFORE_CODE
    tables = re.findall(r"<!-- figures .*?-->\n(.*?)<!-- end", text, re.DOTALL)
    assert [table.strip().count("\n") for table in tables] == [2, 2], "one row a table"


@pytest.mark.parametrize("group", GROUPS)
def test_the_home_page_lists_the_guides_of_a_group(group: str) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition(f"  - {group}:\n")[2]
    named = re.findall(r"guides/[\w-]+\.md", re.split(r"\n  - ", navigation)[0])
    home = (ROOT / "docs" / "index.md").read_text().partition(f"## {GROUPS[group]}\n")[2]
    shown = re.findall(r"\]\((guides/[\w-]+\.md)\)", home.partition("\n## ")[0])
    assert len(named) >= 5 and sorted(shown) == sorted(named)


def test_every_guide_is_in_one_group() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    named = re.findall(r"guides/([\w-]+\.md)", navigation)
    assert sorted(named) == sorted(path.name for path in (ROOT / "docs" / "guides").glob("*.md"))


@pytest.mark.parametrize(
    "record", sorted((ROOT / "docs/decisions").glob("*.md")), ids=lambda p: p.stem
)
def test_a_decision_record_begins_with_its_verdict_and_is_short(record: Path) -> None:
    text = record.read_text()
    assert re.match(r"# .+\n\n\*\*(Holds today|Status: history)\b", text)
    assert len(text.split()) <= WORDS_IN_A_RECORD, "keep verdict, numbers and limits"


def test_the_page_of_benchmarks_is_short() -> None:
    page = ROOT / "docs" / "internals" / "benchmarks.md"
    assert len(page.read_text().split()) <= WORDS_OF_BENCHMARKS, "figures are in benchmarks/results"


def test_every_test_that_proves_a_promise_exists() -> None:
    proofs = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PROOFS.read_text())
    assert len(proofs) > 50
    missing = [
        (path, name)
        for path, name in proofs
        if not (ROOT / path).exists() or f"def {name}" not in (ROOT / path).read_text()
    ]
    assert missing == []


EXAMPLES = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder in ("src/tidelog/examples", "docs/examples")
    for path in sorted((ROOT / folder).glob("*.py"))
}


@pytest.mark.parametrize("program", [*BLOCKS.values(), *EXAMPLES.values()], ids=BLOCKS | EXAMPLES)
def test_a_program_imports_public_names_that_exist(program: str) -> None:
    for name in imported(ast.parse(program)):
        module, _, member = name.rpartition(".")
        if name.startswith("tidelog.examples"):
            assert name in sys.modules or hasattr(import_module(module), member), name
        else:
            assert name in ("tidelog", "tidelog.spark") or name.removeprefix("tidelog.") in PUBLIC


def imported(program: ast.Module) -> Iterator[str]:
    """What a program imports of tidelog, and the members that it takes of `tidelog` by a dot."""
    for node in ast.walk(program):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        yield from (name for name in names if re.match(r"tidelog(\.spark|\.examples)?\b", name))


def test_the_types_of_public_signatures_are_public() -> None:
    library = griffe.load("tidelog", search_paths=[ROOT / "src"])
    assert Signatures(library, PUBLIC).unnamed() == OF_THE_LIBRARY


@pytest.mark.parametrize("engine", ["Flink", "Spark"])
def test_the_options_beside_those_of_other_engines_exist(engine: str) -> None:
    table = PAGE.read_text().partition(f"## Beside {engine}")[2].partition("\n## ")[0]
    rows = [row.split("|") for row in table.splitlines() if row.startswith("| `")]
    shown = {name for row in rows for name in re.findall(r"`([a-z0-9_.]+)`", row[3])}
    assert len(shown) > 5 and shown - set(OPTIONS) == set()
    for row in rows:
        names, defaults = re.findall(r"`([a-z0-9_.]+)`", row[3]), row[4].strip().split(", ")
        told = [OPTIONS[name].default_text for name in names]
        assert defaults == (told or [""]), row[1]


@pytest.mark.parametrize("name", MADE)
def test_the_tables_of_a_page_are_those_of_their_declarations(name: str) -> None:
    """Names are a contract: what this test complains about renames series of running systems."""
    page = (REFERENCE / f"{name}.md").read_text()
    assert page == MADE[name](page), "run `just configuration metrics spark-settings`"


def test_every_label_of_a_series_is_explained() -> None:
    labels = {label for series in SERIES for label in series.labels}
    page = (REFERENCE / "metrics.md").read_text()
    assert {each for each in labels if f"\n| `{each}` |" not in page} == set()


def test_the_file_in_the_docs_of_options_is_taken(tmp_path: Path) -> None:
    [example] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.S)
    file = tmp_path / "job.toml"
    file.write_text(example)
    assert resolve(file, {}, ()).problems == ()


def test_the_metrics_beside_those_of_flink_exist() -> None:
    page = (ROOT / "docs" / "reference" / "flink.md").read_text()
    table = page[page.index("## Metrics") :]
    shown = {
        name
        for row in table.splitlines()
        if row.startswith("| `") or row.startswith("| no")
        for name in re.findall(r"`([a-z0-9_]+)`", row.split("|")[2])
    }
    assert len(shown) > 20
    assert {name for name in shown if not name.endswith("_")} <= {s.metric.name for s in SERIES}
