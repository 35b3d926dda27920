"""The module for pages as a package: by its name in Node.js, and the examples of the documentation in a browser."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.gateway.http.http_client import Web, web
from tests.gateway.http.programs import needs
from tests.real.browser import chromium, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "reknit" / "gateway" / "static" / "reknit"
VENDOR = ROOT / "src" / "reknit" / "console" / "static" / "vendor"
REACT = """
import { h } from "/vendor/preact.js";
import htm from "/vendor/htm.js";
export { render } from "/vendor/preact.js";
export * from "/vendor/preact-hooks.js";
export const html = htm.bind(h);
"""
"""Stands in for React: Preact, as the console has it."""
IN_NODE = """import { stream } from "reknit";
const one = stream(process.argv[1], { onevent: (event) => {
  console.log(event.topic, event.payload, Buffer.from(event.bytes).toString());
  one.close();
}, onstate: (state) => console.log(state) });
"""


@pytest.fixture(scope="module")
def node() -> Iterator[Web]:
    with web() as one:
        yield one


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as one:
        yield one


@needs("node", "nodejs")
def test_it_is_imported_by_its_name_and_reads_a_stream_in_node_js(node: Web, tmp_path: Path) -> None:
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "reknit").symlink_to(PACKAGE)
    place = f"{node.node.epoch}-{node.node.journal.end}-0"
    node.post("/what/node", "hello")
    command = ["node", "--input-type=module", "-e", IN_NODE, f"{node.url}/sse?topic=what/node&from={place}"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150)
    assert ran.stdout.splitlines()[-2:] == ["what/node hello hello", "closed"], ran.stderr


def test_the_package_names_files_that_are_there_and_the_types_of_what_it_exports() -> None:
    described = json.loads((PACKAGE / "package.json").read_text())
    types = (PACKAGE / described["types"]).read_text()
    entry = (PACKAGE / described["main"]).read_text()
    exported = set(re.findall(r"export (?:function |\{ )(\w+)", entry))
    assert exported == set(re.findall(r"export (?:function|class) (\w+)", types))
    for file in PACKAGE.glob("*.js"):
        for part in re.findall(r'from "\./([^"]+)"', file.read_text()):
            assert (PACKAGE / part).exists(), f"{file.name} imports {part}"


def documented(language: str) -> str:
    page = (ROOT / "docs" / "how-to" / "tunnels.md").read_text()
    found = re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


def served(path: Path) -> Callable[[Route], None]:
    """Answers with a module's text."""
    return lambda route: route.fulfill(path=path, content_type="text/javascript")


def test_the_example_for_react_runs(node: Web, browser: Browser) -> None:
    """With Preact, which has the same hooks, and without JSX, which a browser does not read."""
    example = documented("jsx")
    jsx = '<pre>{lines.join("\\n")}</pre>'
    assert jsx in example
    example = example.replace(jsx, 'html`<pre>${lines.join("\\n")}</pre>`')
    assert len(example.strip().splitlines()) <= 12
    body = f"""<!DOCTYPE html><meta charset="utf-8"><div id="app"></div>
    <script type="importmap">{{"imports": {{"react": "/react.js", "reknit": "/reknit.js"}}}}</script>
    <script type="module">
    import {{ html, render }} from "react";
    {example}
    window.leave = () => render(null, document.getElementById("app"));
    render(html`<${{Chat}} />`, document.getElementById("app"));
    </script>"""
    page = browser.new_page()
    page.route("**/page.html", lambda route: route.fulfill(body=body, content_type="text/html"))
    page.route("**/react.js", lambda route: route.fulfill(body=REACT, content_type="text/javascript"))
    for path in VENDOR.glob("*.js"):
        page.route(f"**/vendor/{path.name}", served(path))
    page.goto(f"{node.url}/page.html")
    while not len(node.http.tunnels):
        page.wait_for_timeout(10)
    node.post("/what/chat", "hello")
    wait_for(page, "document.querySelector('pre').textContent === 'hello'")
    page.evaluate("leave()")
    while len(node.http.tunnels):
        page.wait_for_timeout(10)
    page.close()
