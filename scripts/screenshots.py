"""Take the pictures of the console in docs/images/: a node with some history, in Debian's Chromium."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

import reknit
from reknit.config import Config, HttpSettings, NodeSettings
from reknit.outcome import Code
from reknit.server import build_node

FOLDER = Path(__file__).parent.parent / "docs" / "images"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
VIEWS = {"console": "", "console-dead-letters": "letters"}
SHOWN_MS = 2_500
"""How long a page has for two rounds of figures."""


async def history(url: str) -> None:
    """Three subscribers: one that accepts all, one that rejects some, one that has left."""
    async with (
        reknit.connect(url) as session,
        session.subscribe("plant/**", name="archive") as archive,
        session.subscribe("plant/*/temp", name="quality") as quality,
    ):
        async with session.subscribe("orders/**", name="billing") as billing:
            await session.publish_many("orders/new", [f"order {number}" for number in range(60)])
            for _ in range(40):
                await (await anext(aiter(billing))).accept()
        for line in range(4):
            await session.publish_many(
                f"plant/line{line}/temp", [f'{{"c": {20 + n % 9}}}' for n in range(150)]
            )
        for number in range(600):
            await (await anext(aiter(archive))).accept()
            event = await anext(aiter(quality))
            is_odd = number % 37 == 0
            await (
                event.reject(Code.OUT_OF_RANGE, "the sensor is out of range") if is_odd else event.accept()
            )


async def take() -> None:
    from playwright.async_api import async_playwright

    with tempfile.TemporaryDirectory() as data:
        names = NodeSettings(name="plant", listen=("tcp://127.0.0.1:0",), data_dir=Path(data))
        async with build_node(Config(node=names, http=HttpSettings(listen="127.0.0.1:0"))) as node:
            await history(node.urls[0])
            async with async_playwright() as engine:
                browser = await engine.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
                page = await browser.new_page(viewport={"width": 1180, "height": 760})
                for name, view in VIEWS.items():
                    await page.goto(f"{node.doors['http'].url}/#/{view}")
                    await page.wait_for_timeout(SHOWN_MS)
                    await page.screenshot(path=FOLDER / f"{name}.png")
                await browser.close()


if __name__ == "__main__":
    if not shutil.which("chromium"):
        sys.exit("chromium is not installed: apt-get install chromium")
    asyncio.run(take())
