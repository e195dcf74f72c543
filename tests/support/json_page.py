"""The tables of docs/reference/cli-json.md that are made from declarations; run, writes them."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from tests.support.documentation import ROOT
from tidelog.catalog.summary import CheckpointSummary, OperatorSummary, SlotSummary, SubtaskSummary
from tidelog.spark.checkpoint.export import ExportReport
from tidelog.spark.checkpoint.inspection import BatchSummary, LogSummary

PAGE = ROOT / "docs" / "reference" / "cli-json.md"
TABLES: dict[str, type] = {
    "a slot": SlotSummary,
    "the checkpoint": CheckpointSummary,
    "its operators": OperatorSummary,
    "their subtasks": SubtaskSummary,
    "a batch": BatchSummary,
    "`log`": LogSummary,
    "an export": ExportReport,
}
"""What has a table, by its heading."""

_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", Any: "any"}


def documented(kind: type) -> dict[str, str]:
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
        return " or ".join(dict.fromkeys(_NAMES.get(type(p), "string") for p in get_args(hint)))
    return _NAMES.get(hint, "object")


def rows(kind: type) -> Iterator[str]:
    """Rows of the fields: those without a text share one by type, the others follow."""
    texts, hints = documented(kind), get_type_hints(kind)
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
    if not inner or inner[0] in TABLES.values():
        return text or ("See below." if inner else "")
    fields = ", ".join(f"`{field}`" for field in get_type_hints(inner[0]))
    return f"{text or inner[0].__doc__} {fields}."


def table(heading: str) -> str:
    """The table of a declaration."""
    head = f"| key of {heading} | type | meaning |\n|---|---|---|"
    return "\n".join([head, *rows(TABLES[heading])])


def with_generated(page: str) -> str:
    """The page with its generated tables as they should be."""
    for heading in TABLES:
        place = rf"^\| key of {heading} \|.*?(?=\n\n|\Z)"
        text = table(heading)
        page, found = re.subn(place, lambda _: text, page, flags=re.M | re.S)  # noqa: B023
        assert found == 1, heading
    return page


if __name__ == "__main__":
    PAGE.write_text(with_generated(PAGE.read_text()))
