"""Take the pictures of the console in docs/images/: a small fabric with some history, in Debian's Chromium."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reknit
from reknit import environment
from reknit.config import AmqpSettings, Config, HttpSettings, LinkSettings, NodeSettings
from reknit.outcome import Code, FinalOutcome
from reknit.server import build_node

if TYPE_CHECKING:
    from playwright.async_api import Page

FOLDER = Path(__file__).parent.parent / "docs" / "images"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
TOPIC = "plant/line1/temp"
SHOWN_MS = 3_000
"""How long a view has for its figures, and the picture of the fabric to come to rest."""
LIVED_S = 45.0
"""How long the fabric lives before the first picture, for the plots."""
SIZE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}


def settings(folder: Path, name: str, *links: str, is_seen: bool = False) -> Config:
    return Config(
        node=NodeSettings(name=name, listen=("tcp://127.0.0.1:0",), data_dir=folder / name),
        http=HttpSettings(listen="127.0.0.1:0" if is_seen else ""),
        amqp=AmqpSettings(listen="127.0.0.1:0" if is_seen else ""),
        links=LinkSettings(to=links),
    )


async def consume(url: str, pattern: str, reject_every: int = 0, think_s: float = 0.0, **how: Any) -> None:
    async with (
        reknit.connect(url, name=how.get("name", "")) as session,
        session.subscribe(pattern, **how) as events,
    ):
        count = 0
        async for event in events:
            count += 1
            await asyncio.sleep(think_s)
            is_odd = reject_every and count % reject_every == 0
            await (
                event.reject(Code.OUT_OF_RANGE, "the sensor is out of range") if is_odd else event.accept()
            )


async def produce(url: str, topic: str, rate: float) -> None:
    rng = random.Random(topic)
    async with reknit.connect(url) as session:
        number = 0
        while True:
            number += 1
            payload = json.dumps({"celsius": round(20 + 9 * rng.random(), 1), "reading": number})
            await session.publish(
                topic, payload, headers={"trace-id": f"{rng.getrandbits(32):08x}"}, key="sensor"
            )
            await asyncio.sleep(rng.expovariate(rate))


async def leave_behind(url: str) -> None:
    """A subscriber that left in the middle of its work."""
    async with reknit.connect(url) as session, session.subscribe("orders/**", name="billing") as billing:
        await session.publish_many("orders/new", [json.dumps({"order": number}) for number in range(60)])
        for _ in range(40):
            await (await anext(aiter(billing))).accept()


async def report_pipeline(url: str, epoch: str, position: int) -> None:
    """What a pipeline reports of itself."""
    tables = [{"name": name, "files": files, "bytes": size} for name, files, size in (
        ("batches", 12, 48_200_000), ("outcomes", 12, 9_400_000), ("events", 31, 61_300_000),
        ("dead_letters", 4, 210_000),
    )]  # fmt: skip
    figures = {
        "batches": 18_204,
        "settled": 4_120_334,
        "events_s": 3_180.0,
        "batches_s": 14.0,
        "lag_bytes": 48_000,
    }
    audit = {
        "at_us": environment.time_us(),
        "is_balanced": True,
        "rows": 24,
        "page": "/lakes/plant/audit.html",
    }
    async with reknit.connect(url) as session:
        await session.ask(
            "pipeline", id="plant", lake="/lakes/plant", stage="running", dead_letters=118, tables=tables,
            audit=audit, positions={epoch: position}, **figures,
        )  # fmt: skip


async def shoot(page: Page, url: str, name: str, view: str) -> None:
    await page.goto(f"{url}/#/{view}")
    await page.wait_for_timeout(SHOWN_MS)
    await page.screenshot(path=FOLDER / f"{name}.png")


async def take() -> None:
    from playwright.async_api import async_playwright

    with tempfile.TemporaryDirectory() as data:
        folder = Path(data)
        async with build_node(settings(folder, "plant", is_seen=True)) as plant:
            url = plant.urls[0]
            far = [build_node(settings(folder, name, url)) for name in ("edge", "cloud")]
            for one in far:
                await one.start()
            edge, cloud = (one.urls[0] for one in far)
            await leave_behind(url)
            work = [
                consume(url, "plant/**", name="archive"),
                consume(url, "plant/*/temp", 37, name="quality"),
                consume(cloud, "plant/**", name="reports"),
                consume(url, "jobs/resize", queue="resizers", think_s=0.05),
                consume(url, "jobs/resize", queue="resizers", think_s=0.05),
                produce(url, "jobs/resize", 8.0),
                *(produce(edge if line == 3 else url, f"plant/line{line}/temp", 7.0) for line in range(4)),
            ]
            tasks = [asyncio.create_task(one) for one in work]
            await asyncio.sleep(LIVED_S)
            await pictures(plant, async_playwright)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for one in far:
                await one.stop()


async def pictures(node: Any, engine_of: Any) -> None:
    url, ledger = node.doors["http"].url, node.journal.ledger
    await report_pipeline(node.urls[0], node.epoch, node.journal.end)
    letters = node.core.dead_letter_admin.page({"limit": 20, "before": 1 << 60})["letters"]
    letter = next(row for _, row in letters if row["topic"] == TOPIC)
    event = f"event?topic={TOPIC}&id={letter['source'].hex()}:{letter['seq']}"
    views = {
        "console": "ledger",
        "console-fabric": "fabric",
        "console-topics": "topics",
        "console-topic": f"topic?name={TOPIC}",
        "console-search": 'event?topic=plant/**&text=celsius": 21',
        "console-event": event,
        "console-dead-letters": "letters",
        "console-subscribers": "subscribers",
        "console-connections": "connections",
        "console-pipelines": "pipelines",
        "console-node": "node",
        "console-settings": "node?tab=settings&name=http",
    }
    async with engine_of() as engine:
        browser = await engine.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = await browser.new_page(viewport=SIZE)
        for name, view in views.items():
            await report_pipeline(node.urls[0], node.epoch, node.journal.end)
            await shoot(page, url, name, view)
        dark = await browser.new_page(viewport=SIZE, color_scheme="dark")
        await shoot(dark, url, "console-dark", "ledger")
        phone = await browser.new_page(viewport=PHONE, device_scale_factor=2)
        await shoot(phone, url, "console-phone", "ledger")
        # last, as it stays: a loss that the others are not to show
        orders = next(one for one in ledger.published if one[0] == "orders/new")
        ledger.accounts["billing"].settle(orders, 45, 49, FinalOutcome.LOST)
        await shoot(page, url, "console-losses", "losses")
        await shoot(page, url, "console-sources", "sources?topic=orders/new")
        await shoot(page, url, "console-lost", "ledger")
        await browser.close()


if __name__ == "__main__":
    if not shutil.which("chromium"):
        sys.exit("chromium is not installed: apt-get install chromium")
    asyncio.run(take())
