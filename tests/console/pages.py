"""The console in a real browser, for tests: it fails where the page logs an error or asks for anything elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

WAIT_MS = 150_000
PHONE = {"width": 390, "height": 800}
RESOURCE = "Failed to load resource"
"""The browser itself logs every answer of 400 or more like this."""


@contextmanager
def opened(chromium: Browser, url: str, view: str = "", **options: Any) -> Iterator[Page]:
    """A view of the console at `url`."""
    context = chromium.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    errors: list[str] = []

    def logged(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and RESOURCE not in message.text:
            errors.append(message.text)

    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", logged)
    page.on("request", lambda request: errors.extend([request.url][request.url.startswith((url, "blob:")) :]))
    page.goto(f"{url}/#/{view}")
    try:
        yield page
        assert errors == []
    finally:
        context.close()


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine. The browser's driver has an event loop in this thread already."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, program).result()


def heading(page: Page, text: str) -> None:
    """Wait for a heading."""
    page.get_by_role("heading", name=text, exact=True).wait_for()


def barriers(page: Page) -> list[str]:
    """What axe-core finds that is serious: parts of the page that some people can't use."""
    pytest.importorskip("axe_playwright_python", reason="pip install axe-playwright-python")
    source = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
    page.evaluate(source)
    found = page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then((one) => JSON.stringify(one.violations))"
    )
    return [
        f"{one['id']}: {one['nodes'][0]['html']}"
        for one in json.loads(found)
        if one["impact"] in ("serious", "critical")
    ]
