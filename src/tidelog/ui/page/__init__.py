"""The page: one HTML file with its style, its script and, in a report, its document.

Invariant: a browser loads nothing else, and runs nothing but this script, whatever a document
contains.
"""

import base64
import hashlib
from importlib.resources import files
from typing import Final

import msgspec

from tidelog.ui.document import Document

_SCRIPTS: Final = (
    *("values.js", "elements.js", "chart.js", "charts.js", "overview.js", "state.js"),
    *("operators.js", "costs.js", "retained.js", "query.js", "page.js"),
)


def page(document: Document | None = None) -> str:
    """HTML; with a document a file by itself, without one it asks its server for it."""
    # In a script element: JSON that cannot end the element, nor begin another.
    data = msgspec.json.encode(document).decode().replace("<", "\\u003c")
    return (
        _read("page.html")
        .replace("{{policy}}", policy())
        .replace("{{style}}", _read("page.css"))
        .replace("{{script}}", _script())
        # Last: a document may contain anything.
        .replace("{{document}}", data)
    )


def policy() -> str:
    return (
        f"default-src 'none'; script-src {_hash(_script())}; style-src {_hash(_read('page.css'))}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def _script() -> str:
    parts = "\n".join(_read(name) for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _read(name: str) -> str:
    return files("tidelog.ui.page").joinpath(name).read_text(encoding="utf-8")
