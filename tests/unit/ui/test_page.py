"""The page is one file that loads nothing, whatever a document contains."""

import base64
import hashlib
import html.parser
import json
import re

import msgspec
import pytest

from tests.support.jobs import filled
from tests.support.watching import document_of
from tidelog.ui.document import Document
from tidelog.ui.page import page, policy

NASTY = "</script><script>alert(1)</script><!--<script>{{style}}\u2028"


class Elements(html.parser.HTMLParser):
    """The elements of a page with their attributes, and the texts of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.within = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.texts.append("")
        self.within = True

    def handle_endtag(self, tag: str) -> None:
        self.within = False

    def handle_data(self, data: str) -> None:
        if self.within:
            self.texts[-1] += data

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        pairs = zip(self.tags, self.texts, strict=True)
        return [(attributes, text) for (name, attributes), text in pairs if name == tag]


@pytest.fixture(scope="module")
def document() -> Document:
    return document_of(filled())


def embedded(text: str) -> object:
    [data] = [t for a, t in Elements(text).of("script") if a.get("type") == "application/json"]
    return json.loads(data)


def test_a_report_holds_its_document(document: Document) -> None:
    assert embedded(page(document)) == json.loads(msgspec.json.encode(document))


def test_a_page_without_a_document_asks_its_server() -> None:
    assert embedded(page()) is None


def test_a_document_cannot_leave_its_place(document: Document) -> None:
    nasty = msgspec.structs.replace(document, job=NASTY, url=NASTY)
    found = embedded(page(nasty))
    assert isinstance(found, dict) and found["job"] == NASTY
    plain, hostile = Elements(page(document)), Elements(page(nasty))
    assert [name for name, _ in plain.tags] == [name for name, _ in hostile.tags]


def test_only_this_script_and_this_style_are_allowed(document: Document) -> None:
    for text in (page(), page(document)):
        elements = Elements(text)
        [(meta, _)] = [e for e in elements.of("meta") if "http-equiv" in e[0]]
        assert meta["content"] == policy()
        [script] = [t for attributes, t in elements.of("script") if "type" not in attributes]
        [(_, style)] = elements.of("style")
        for kind, inline in (("script-src", script), ("style-src", style)):
            digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
            assert f"{kind} 'sha256-{digest}';" in policy()
    assert policy().startswith("default-src 'none';") and "unsafe" not in policy()


def test_it_names_no_address(document: Document) -> None:
    text = page(document)
    told = msgspec.json.encode(document).decode()
    namespaces = ("http://www.w3.org/2000/svg",)
    addresses = set(re.findall(r"(?:https?:)?//[a-z0-9.]+\.[a-z]+[^ '\"`;]*", text))
    assert {a for a in addresses if a not in namespaces and a not in told} == set()
    assert not re.search(r"\b(?:src|href)=\"(?!data:)", text)


def test_it_makes_no_markup_of_texts() -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", page())
