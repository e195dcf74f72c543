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
    "values.js",
    "elements.js",
    "chart.js",
    "charts.js",
    "overview.js",
    "state.js",
    "operators.js",
    "costs.js",
    "slots.js",
    "query.js",
    "page.js",
)


def page(document: Document | None = None) -> str:
    """HTML; with a document a file by itself, without one it asks its server for it."""
    style, script = _style(), _script()
    data = "null" if document is None else as_script(document)
    return (
        _read("page.html")
        .replace("{{policy}}", policy())
        .replace("{{style}}", style)
        .replace("{{script}}", script)
        # Last: a document may contain anything.
        .replace("{{document}}", data)
    )


def policy() -> str:
    """The content security policy of the page."""
    return (
        f"default-src 'none'; script-src {_hash(_script())}; style-src {_hash(_style())}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def as_script(document: Document) -> str:
    """JSON that cannot end the element it stands in, nor begin another."""
    return msgspec.json.encode(document).decode().replace("<", "\\u003c")


def _style() -> str:
    return _read("page.css")


def _script() -> str:
    parts = "\n".join(_read(name) for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _read(name: str) -> str:
    return files("tidelog.ui.page").joinpath(name).read_text(encoding="utf-8")
