"""Every view in a real browser: what it shows, what one may do there, and whether everybody can use it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import reknit
from reknit.outcome import Code
from tests.console.pages import PHONE, barriers, heading, opened, run
from tests.gateway.http.http_client import Web, config, web
from tests.gateway.http.node_process import Living
from tests.guarded_files import GuardedFiles

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.real

GOOD = "Every event is accounted for"
NOBODY = "Nobody is owed an event yet"
MANY = 10_000


@pytest.fixture(scope="module")
def node() -> Iterator[Web]:
    """A node with some history. Tests add to it, and none takes anything away."""
    with web() as one:
        run(_history(one.node.urls[0]))
        yield one


async def _history(url: str) -> None:
    async with (
        reknit.connect(url) as session,
        session.subscribe("orders/**", name="late"),
        session.subscribe("plant/**", name="audit") as audit,
    ):
        await session.publish("plant/line1/temp", '{"c": 21.5}', headers={"trace": "t-1"}, key="k1")
        await session.publish("plant/line1/temp", "99")
        await session.publish("orders/new", "one")
        for _ in range(2):
            event = await anext(aiter(audit))
            await (event.reject(Code.OUT_OF_RANGE, "too hot") if event.payload == b"99" else event.accept())


def source(node: Web) -> str:
    """The source of plant/line1/temp."""
    [found] = {one for topic, one in node.node.journal.ledger.published if topic == "plant/line1/temp"}
    return str(found.hex())


def views(node: Web) -> list[tuple[str, str]]:
    """Every view by its address, and something that it shows."""
    event = f"{source(node)}:1"
    return [
        ("ledger", "in flight"),
        ("ledger?subscriber=audit&order=lost", "plant/line1/temp"),
        ("fabric", "This node has no links"),
        ("topics", "plant/line1/temp"),
        ("topic?name=plant/line1/temp", "No event since this page was opened"),
        ("event", "Say what you look for"),
        ("event?topic=plant/**&text=21.5", "1 found among"),
        (f"event?topic=plant/line1/temp&id={event}", "at position"),
        ("letters", "too hot"),
        ("losses", "Nothing is lost"),
        ("sources?topic=plant/line1/temp", "held here"),
        ("subscribers", "away"),
        ("connections", "HTTP, tunnel (sse)"),
        ("pipelines", "No pipeline has reported to this node"),
        ("node", "a sync takes"),
        ("node?tab=settings&name=listen", "http.listen"),
        ("node?tab=log", "The last lines of this process"),
        ("node?tab=audit", "The audit trail is empty"),
    ]


def shows(page: Page, text: str) -> None:
    page.get_by_text(text).first.wait_for()


def test_every_view_can_be_opened_by_its_address_and_used_by_everybody(chromium: Browser, node: Web) -> None:
    with opened(chromium, node.url) as page:
        for view, text in views(node):
            page.goto(f"{node.url}/#/{view}")
            shows(page, text)
            assert barriers(page) == [], view


@pytest.mark.parametrize(
    "options", [{"color_scheme": "dark"}, {"viewport": PHONE, "has_touch": True}], ids=["dark", "phone"]
)
def test_it_is_as_good_in_the_dark_and_on_a_phone(
    chromium: Browser, node: Web, options: dict[str, Any]
) -> None:
    with opened(chromium, node.url, **options) as page:
        for view, text in views(node)[::3]:
            page.goto(f"{node.url}/#/{view}")
            shows(page, text)
            assert barriers(page) == [], view
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view


def test_a_colour_scheme_changes_the_page(chromium: Browser, node: Web) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    with opened(chromium, node.url, color_scheme="dark") as page:
        heading(page, GOOD)
        dark = page.evaluate(colour)
        page.emulate_media(color_scheme="light")
        assert page.evaluate(colour) != dark


def test_people_go_from_a_topic_to_an_event_and_back(chromium: Browser, node: Web) -> None:
    with opened(chromium, node.url, "topics") as page:
        page.get_by_role("link", name="plant/line1/temp").click()
        heading(page, "plant/line1/temp")
        page.get_by_text("live", exact=True).wait_for()
        node.post("/plant/line1/temp", '{"c": 23}')
        page.get_by_text('{"c": 23}').wait_for()
        page.get_by_role("button", name="More").click()
        page.get_by_role("button", name="Hex").click()
        shows(page, "7b 22 63 22 3a")
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("region", name="Newest events").get_by_role("link").first.click()
        heading(page, "One event")
        shows(page, "in flight")
        page.go_back()
        heading(page, "plant/line1/temp")


def test_the_page_is_used_by_keyboard(chromium: Browser, node: Web) -> None:
    with opened(chromium, node.url) as page:
        heading(page, GOOD)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "To the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.goto(f"{node.url}/#/fabric")
        page.get_by_role("button", name=re.compile("test, node")).press("Enter")
        page.get_by_role("status").get_by_text("node", exact=True).wait_for()
        page.goto(f"{node.url}/#/sources?topic=plant/line1/temp")
        page.get_by_role("button", name=re.compile("^Events 1 to")).first.press("Enter")
        heading(page, "One event")


def test_events_are_found_and_published(chromium: Browser, node: Web) -> None:
    with opened(chromium, node.url, "topics") as page:
        page.get_by_role("button", name="Publish…").click()
        page.get_by_label("Topic", exact=True).fill("desk/note")
        page.get_by_label("Payload").fill("a needle in the hay")
        page.get_by_label("Headers").fill("trace: t-77")
        page.get_by_role("dialog").get_by_role("button", name="Publish", exact=True).click()
        page.get_by_role("link", name="See what becomes of it").click()
        shows(page, "a needle in the hay")
        page.goto(f"{node.url}/#/event")
        page.get_by_label("Header").fill("trace=t-77")
        page.get_by_role("button", name="Search").click()
        shows(page, "1 found among")
        assert "header=trace" in page.url


def test_a_connection_is_ended(chromium: Browser, node: Web) -> None:
    with node.stream("/sse?topic=attic/**") as tunnel:
        tunnel.until(b"opened")
        with opened(chromium, node.url, "connections?name=attic") as page:
            page.get_by_role("button", name=re.compile("^End ")).click()
            page.get_by_role("button", name="End it").click()
            assert b"an operator ended this connection" in tunnel.rest()
            shows(page, "Nobody is connected.")


# -- what changes much


async def _reject_many(url: str) -> None:
    async with reknit.connect(url) as session, session.subscribe("bulk/**", name="picky") as picky:
        await session.publish_many("bulk/a", [b"%d" % number for number in range(MANY)])
        left = MANY
        async for batch in picky.batches():
            await batch.reject(Code.OUT_OF_RANGE, "too many")
            left -= batch.count
            if not left:
                return


def test_ten_thousand_dead_letters_are_redriven_with_a_report(chromium: Browser) -> None:
    with web() as node:
        run(_reject_many(node.node.urls[0]))
        with opened(chromium, node.url, "letters?topic=bulk/**") as page:
            page.get_by_role("button", name="Count all that match").click()
            shows(page, "10,000 match")
            page.get_by_label("choose", exact=False).nth(1).check()
            page.get_by_role("button", name="Redrive the 1 chosen one").click()
            page.get_by_role("button", name="Yes, redrive the 1 chosen one").click()
            shows(page, "1 redriven")
            page.get_by_role("button", name="Redrive all that match").click()
            page.get_by_label("Events a second").fill("1000000")
            page.get_by_label("To whom").select_option("all")
            page.get_by_role("button", name="Yes, redrive all that match").click()
            shows(page, "9,999 redriven")
            shows(page, "0 still wait")
        # the chosen one went to its subscriber alone, on a private topic
        assert node.node.journal.ledger.topics["bulk/a"].events == 2 * MANY - 1


def test_the_page_survives_the_death_of_its_node(chromium: Browser, tmp_path: Path) -> None:
    with Living(tmp_path / "data") as node, opened(chromium, node.url) as page:
        heading(page, NOBODY)
        page.get_by_text("Live", exact=True).wait_for()
        node.kill()
        shows(page, "The node does not answer. These figures are from")
        heading(page, NOBODY)
        node.start()
        page.get_by_role("alert").wait_for(state="detached")
        page.get_by_text("Live", exact=True).wait_for()


def test_a_person_enters_a_token_and_sees_what_it_allows(chromium: Browser, tmp_path: Path) -> None:
    tokens = {"ann": "a-token", "wat": "w-token", "root": "r-token"}
    rules = ("ann subscribe **", "wat watch **", "root admin")
    files = GuardedFiles(tmp_path, tokens, *rules)
    with web(files.guard(config())) as node:
        with opened(chromium, node.url) as page:
            page.get_by_label("Token").fill("a-token")
            page.get_by_role("button", name="Use it").click()
            heading(page, NOBODY)
            shows(page, "ann, may only look")
            page.goto(f"{node.url}/#/letters")
            shows(page, "The rule 'ann admin' would allow it")
            assert page.get_by_role("button", name="Drop all").is_disabled()
            page.goto(f"{node.url}/#/node?tab=settings")
            shows(page, "add 'ann admin' to security.allow")
            assert "a-token" not in page.url
        with opened(chromium, node.url) as page:
            page.get_by_label("Token").fill("r-token")
            page.get_by_role("button", name="Use it").click()
            shows(page, "root, admin")
            page.goto(f"{node.url}/#/letters")
            page.get_by_role("button", name="Drop all").click()
            shows(page, "They are dropped for good.")
