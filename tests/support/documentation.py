"""The Python programs that the documentation prints, by page and place: `sinks 0`, `README 1`."""

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
END = "<!-- end of the generated part -->\n"
BLOCKS = {
    f"{page.stem} {number}": block
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
}


def table(heads: str, rows: Iterable[Iterable[str]]) -> list[str]:
    """The lines of a table, `heads` with bars between them."""
    head = [f"| {heads} |", f"|{'---|' * (1 + heads.count(' | '))}"]
    return [*head, *(f"| {' | '.join(row)} |" for row in rows), ""]


def with_generated(page: str, begin: str, text: str) -> str:
    """A page with `text` as its generated part, which stands behind the comment `begin`."""
    before, _, rest = page.partition(begin)
    after = rest.partition(END)[2]
    return f"{before}{begin}\n{text}\n{END}{after}"
