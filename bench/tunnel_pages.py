"""Pages in Chromium: how fast events reach 1, 6 and 20 tabs of one site, and whether they stay responsive.

`python -m bench.tunnel --only pages` runs it. Events of 256 bytes are published at a steady rate. All tabs read one
topic, and check that each event comes once and in order. A gap is how long a page's main thread did nothing else: the
time between two timers of 4 ms, beyond those; `idle_gap_ms` is the same before the first event, which is the machine's.
EventSource is the browser's own, beside it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from reknit.client.blocking.session import connect_sync
from reknit.processes.process import free_port, start_tied

EVENT_BYTES: Final = 256
SECONDS: Final = 6
IDLE_S: Final = 3
CHUNKS_PER_S: Final = 50
WAIT_MS: Final = 120_000
CASES: Final = (
    *(("shared", tabs, rate) for tabs in (1, 6, 20) for rate in (10_000, 50_000)),
    ("websocket", 1, 50_000),
    ("eventsource", 1, 10_000),
    ("eventsource", 6, 10_000),
)
FLAGS: Final = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    "--disable-features=LocalNetworkAccessChecks",  # a page that is made up has no address
]
PAGE: Final = """<!DOCTYPE html><meta charset="utf-8"><script type="module">
import { stream } from "/reknit.js";
const via = location.hash.slice(1);
const seen = { count: 0, wrong: 0, firstAt: 0, lastAt: 0, lastMs: 0, lateMs: 0 };
Object.assign(seen, { idleMs: 0, gapMs: 0, gaps: 0, state: "" });
window.seen = seen;
let next = 0;
function note(seq, time_us) {
  if (next && seq !== next) seen.wrong += 1;
  next = seq + 1;
  seen.count += 1;
  seen.firstAt ||= Date.now();
  seen.lastMs = Date.now() - time_us / 1000;
  if (seen.lastMs > seen.lateMs) seen.lateMs = seen.lastMs;
  seen.lastAt = Date.now();
}
const options = { onbatch: (events) => { for (const event of events) note(event.seq, event.time_us); } };
if (via === "eventsource") {
  const source = new EventSource("/sse?topic=bench/page");
  source.addEventListener("opened", () => (seen.state = "live"));
  source.onmessage = ({ data }) => { const event = JSON.parse(data); note(event.seq, event.time_us); };
} else stream("/sse?topic=bench/page", { ...options, via, onstate: (state) => (seen.state = state) });
let before = performance.now();
function beat() {
  const now = performance.now();
  const gap = now - before - 4;
  if (seen.count && gap > seen.gapMs) seen.gapMs = gap;
  if (seen.state === "live" && !seen.count && gap > seen.idleMs) seen.idleMs = gap;
  if (seen.count && gap > 50) seen.gaps += 1;
  before = now;
  setTimeout(beat, 4);
}
beat();
</script>"""


def publish(url: str, rate: int, seconds: float) -> None:
    """Publish at a steady rate."""
    payload = b"x" * EVENT_BYTES
    with connect_sync(url) as session:
        began = time.perf_counter()
        for number in range(int(seconds * CHUNKS_PER_S)):
            time.sleep(max(0.0, began + number / CHUNKS_PER_S - time.perf_counter()))
            session.publish_many("bench/page", [payload] * (rate // CHUNKS_PER_S))
        print(json.dumps({"took_s": time.perf_counter() - began}))


@contextmanager
def _node() -> Iterator[tuple[str, str]]:
    """A node: its address for programs, and the one for pages."""
    native, web = f"tcp://127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "reknit", "up", "--data", data, "--listen", native, "--http", web]
        process = start_tied(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield native, f"http://{web}"
        finally:
            process.terminate()
            process.communicate()


def _measure(browser: Any, via: str, tabs: int, rate: int) -> dict[str, Any]:
    with _node() as (native, web):
        context = browser.new_context()
        context.route("**/page.html", lambda route: route.fulfill(body=PAGE, content_type="text/html"))
        pages = [context.new_page() for _ in range(tabs)]
        try:
            for page in pages:
                page.goto(f"{web}/page.html#{via}", timeout=WAIT_MS)
            for page in pages:
                page.wait_for_function("seen.state === 'live'", timeout=WAIT_MS)
            return _run(pages, native, via, tabs, rate)
        finally:
            context.close()


def _run(pages: list[Any], native: str, via: str, tabs: int, rate: int) -> dict[str, Any]:
    count = int(SECONDS * CHUNKS_PER_S) * (rate // CHUNKS_PER_S)
    command = [sys.executable, "-m", "bench.tunnel_pages", native, str(rate), str(SECONDS)]
    time.sleep(IDLE_S)
    publishing = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for page in pages:
        page.wait_for_function(f"seen.count >= {count}", timeout=WAIT_MS, polling=100)
    published_s = json.loads(publishing.communicate()[0])["took_s"]
    seen = [page.evaluate("seen") for page in pages]
    took = max(one["lastAt"] - one["firstAt"] for one in seen) / 1000
    return {
        "pages": via,
        "tabs": tabs,
        "rate": rate,
        "published_per_s": count / published_s,
        "events_per_s_a_tab": count / took,
        "late_ms": statistics.median(one["lateMs"] for one in seen),
        "idle_gap_ms": max(one["idleMs"] for one in seen),
        "longest_gap_ms": max(one["gapMs"] for one in seen),
        "gaps_over_50_ms": statistics.median(one["gaps"] for one in seen),
        "repeats_or_holes": sum(one["wrong"] + one["count"] - count for one in seen),
    }


def pages() -> Iterator[dict[str, Any]]:
    """One row for each case."""
    from playwright.sync_api import sync_playwright

    from tests.gateway.http.programs import CHROMIUM

    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        try:
            for via, tabs, rate in CASES:
                yield _measure(browser, via, tabs, rate)
        finally:
            browser.close()


if __name__ == "__main__":
    publish(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
