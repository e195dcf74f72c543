"""The tables of docs/reference that are made from declarations; run as a module with the names of
pages, writes them.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from itertools import groupby
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from tests.support.documentation import ROOT
from tidelog.catalog.summary import CheckpointSummary, OperatorSummary, SlotSummary, SubtaskSummary
from tidelog.options.declaration import Declared
from tidelog.runtime.status.series import SERIES, Series
from tidelog.settings import OPTIONS, flag
from tidelog.spark.checkpoint.export import ExportReport
from tidelog.spark.checkpoint.inspection import BatchSummary, LogSummary
from tidelog.spark.plugin import options as of_spark

REFERENCE = ROOT / "docs" / "reference"
END = "<!-- end of the generated part -->\n"
JSON_TABLES: dict[str, type] = {
    "a checkpoint in the list": SlotSummary,
    "the checkpoint": CheckpointSummary,
    "its operators": OperatorSummary,
    "their subtasks": SubtaskSummary,
    "a batch": BatchSummary,
    "`log`": LogSummary,
    "an export": ExportReport,
}
"""What has a table, by its heading."""

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", Any: "any"}


def field_texts(kind: type) -> dict[str, str]:
    """The text below each field of a class."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def parts(hint: Any) -> Iterator[Any]:
    """The types in a hint."""
    yield hint
    for part in get_args(hint):
        yield from parts(part)


def type_name(hint: Any) -> str:
    """What a field is in JSON."""
    hint = getattr(hint, "__supertype__", hint)
    if get_origin(hint) in (tuple, list):
        return "array"
    names = [type_name(part) for part in get_args(hint) if part not in (type(None), ...)]
    if type(None) in get_args(hint):
        return " or ".join(dict.fromkeys([*names, "null"]))
    if get_args(hint) and get_origin(hint) is not dict:
        return " or ".join(dict.fromkeys(_TYPES.get(type(p), "string") for p in get_args(hint)))
    return _TYPES.get(hint, "object")


def fields_of(kind: type) -> Iterator[str]:
    """Rows of the fields: those without a text share one by type, the others follow."""
    texts, hints = field_texts(kind), get_type_hints(kind)
    bare: dict[str, list[str]] = {}
    said = {name: text for name in hints if (text := meaning(hints[name], texts.get(name, "")))}
    for name in hints.keys() - said.keys():
        bare.setdefault(type_name(hints[name]), []).append(name)
    for type_, names in sorted(bare.items()):
        fields = ", ".join(f"`{name}`" for name in sorted(names, key=list(hints).index))
        yield f"| {fields} | {type_} | |"
    for name, text in said.items():
        yield f"| `{name}` | {type_name(hints[name])} | {text} |"


def meaning(hint: Any, text: str) -> str:
    """The text of a field; with the fields of what it holds, where that has no table."""
    inner = [p for p in parts(hint) if is_dataclass(p) or isinstance(p, msgspec.StructMeta)]
    if not inner or inner[0] in JSON_TABLES.values():
        return text or ("See below." if inner else "")
    fields = ", ".join(f"`{field}`" for field in get_type_hints(inner[0]))
    return f"{text or inner[0].__doc__} {fields}."


def with_json(page: str) -> str:
    for heading, kind in JSON_TABLES.items():
        place = rf"^\| key of {heading} \|.*?(?=\n\n|\Z)"
        head = f"| key of {heading} | type | meaning |\n|---|---|---|"
        text = "\n".join([head, *fields_of(kind)])
        page, found = re.subn(place, lambda _: text, page, flags=re.M | re.S)  # noqa: B023
        assert found == 1, heading
    return page


def table(heads: str, rows: Iterable[Iterable[str]]) -> list[str]:
    """The lines of a table, `heads` with bars between them."""
    head = [f"| {heads} |", f"|{'---|' * (1 + heads.count(' | '))}"]
    return [*head, *(f"| {' | '.join(row)} |" for row in rows), ""]


def with_generated(page: str, recipe: str, lines: Iterable[str]) -> str:
    """A page with these lines as its generated part, which names the recipe."""
    begin = f"<!-- generated from the declarations: `just {recipe}` -->\n"
    before, _, rest = page.partition(begin)
    text = "\n".join(lines)
    return f"{before}{begin}\n{text}\n{END}{rest.partition(END)[2]}"


def section(declared: Declared) -> str:
    """The part of the configuration that an option is in; empty for the job itself."""
    return declared.path[0] if len(declared.path) > 1 else ""


EXAMPLES = re.compile(
    r" with its unit, such as 250 ms or 2 min| such as (?:64 MiB|50 MB/s)|a whole "
)
"""What an error says of a value, and a page once for all options."""


def option_row(declared: Declared) -> Iterable[str]:
    option = declared.option
    also = "".join(f", `{alias}`" for alias in option.aliases)
    cells = (
        f"`{declared.name}`",
        declared.default_text,
        EXAMPLES.sub("", option.expected),
        f"{option.help} *{option.when}*",
        f"`{flag(declared)}`{also}",
    )
    return (cell.replace("|", "\\|") for cell in cells)


def with_options(page: str) -> str:
    heads = "option | default | values | what it does, *when to change it* | flag"
    lines = []
    for name, options in groupby(OPTIONS.values(), section):
        lines += [f"### {name or 'The job'}", "", *table(heads, map(option_row, options))]
    return with_generated(page, "configuration", lines)


def series_row(series: Series) -> tuple[str, ...]:
    metric = series.metric
    return (
        f"`{series.prometheus_name}`",
        metric.kind,
        ", ".join(f"`{label}`" for label in series.labels if label != "job_name"),
        metric.unit or "",
        " ".join(f"`{key}`" for key in series.keys),
        f"{metric.help} *{metric.watch}*",
    )


def with_series(page: str) -> str:
    rooms: dict[str, list[Series]] = {}
    for series in SERIES:
        rooms.setdefault(series.room, []).append(series)
    heads = "series | type | labels | unit | in JSON | meaning, *what to look for*"
    lines = []
    for room, found in rooms.items():
        title = room.replace("_", " ").capitalize() or "Job"
        lines += [f"### {title}", "", *table(heads, map(series_row, found))]
    return with_generated(page, "metrics", lines)


def with_options_of_spark(page: str) -> str:
    rows = [
        (f"`{option.name}`", f"`{option.argument}`", f"`{option.default}`", option.help)
        for option in of_spark.OPTIONS
    ]
    lines = table("`spark.tidelog.` | Python | default | meaning", rows)
    return with_generated(page, "spark-settings", lines)


MADE: dict[str, Callable[[str], str]] = {
    "configuration": with_options,
    "metrics": with_series,
    "cli-json": with_json,
    "spark-plugin": with_options_of_spark,
}
"""What makes a page as it should be of the page as it is."""


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = REFERENCE / f"{name}.md"
        path.write_text(MADE[name](path.read_text()))
