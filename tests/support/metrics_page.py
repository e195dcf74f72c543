"""The generated part of docs/reference/metrics.md; run as a module, writes it."""

from tests.support import documentation
from tests.support.documentation import ROOT
from tidelog.runtime.status.series import SERIES, Series

PAGE = ROOT / "docs" / "reference" / "metrics.md"
BEGIN = "<!-- generated from the declarations: `just metrics` -->\n"


def row(series: Series) -> tuple[str, ...]:
    """The cells of a series."""
    metric = series.metric
    labels = ", ".join(f"`{label}`" for label in series.labels)
    return (
        f"`{series.prometheus_name}`",
        metric.kind,
        labels,
        metric.unit or "",
        " ".join(f"`{key}`" for key in series.keys),
        f"{metric.help} *{metric.watch}*",
    )


def generated() -> str:
    """A table for each part of a job's status."""
    rooms: dict[str, list[Series]] = {}
    for series in SERIES:
        rooms.setdefault(series.room, []).append(series)
    heads = "series | type | labels | unit | in JSON | meaning, *and what to look at it for*"
    lines = []
    for room, found in rooms.items():
        title = room.replace("_", " ").capitalize() or "Job"
        lines += [f"### {title}", "", *documentation.table(heads, map(row, found))]
    return "\n".join(lines)


def with_generated(page: str) -> str:
    """The page with its generated part as it should be."""
    return documentation.with_generated(page, BEGIN, generated())


if __name__ == "__main__":
    PAGE.write_text(with_generated(PAGE.read_text()))
