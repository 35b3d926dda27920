"""Tabs in Chromium for a long time, while their node is killed again and again: each event once, and memory stays flat.

python -m bench.tunnel_soak                  an hour, six tabs, 200 events a second, a kill -9 every minute
python -m bench.tunnel_soak --minutes 10
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from bench.tunnel_pages import FLAGS, WAIT_MS
from reknit.client.blocking.session import connect_sync
from reknit.processes.process import free_port, start_tied

KILL_S: Final = 60
SAMPLE_S: Final = 20
PER_S: Final = 200
PAGE: Final = """<!DOCTYPE html><meta charset="utf-8"><script type="module">
import { stream } from "/reknit.js";
window.seen = { count: 0, next: 0, wrong: 0, states: {} };
stream("/sse?topic=soak/page", {
  onevent: (event) => {
    const number = Number(event.payload.split(":")[0]);
    if (number !== seen.next) seen.wrong += 1;
    seen.next = number + 1;
    seen.count += 1;
  },
  onstate: (state) => (seen.states[state] = (seen.states[state] ?? 0) + 1),
});
</script>"""


class Node:
    """A node that can be killed."""

    def __init__(self, data: str) -> None:
        self.native, self.web = f"tcp://127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self._command = [sys.executable, "-m", "reknit", "up", "--data", data, "--listen", self.native]
        self._command += ["--http", self.web, "--set", "retention.bytes_max=64MiB"]
        self.start()

    def start(self) -> None:
        self._process = start_tied(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def publish(url: str, until: float) -> None:
    """Publish numbers until a time, through restarts of the node. Prints how many."""
    number = 0
    with connect_sync(url, wait_s=120) as session:
        while time.time() < until:
            session.publish("soak/page", f"{number}:".ljust(200, "x"))
            number += 1
            time.sleep(1 / PER_S)
    print(number)


def browser_bytes(mark: str) -> int:
    """The memory of the browser's processes that is not shared."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parents[int(folder.name)] = int(
                    (folder / "status").read_text().partition("PPid:")[2].split()[0]
                )
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in command and b"chromium" in command.partition(b"\0")[0]:
                found.add(int(folder.name))
    while below := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= below
    return sum(_own_bytes(pid) for pid in found)


def _own_bytes(pid: int) -> int:
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except OSError:
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def soak(minutes: float, tabs: int) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    from tests.gateway.http.programs import CHROMIUM

    mark = f"--mark={uuid4().hex}"
    with tempfile.TemporaryDirectory() as data, sync_playwright() as engine:
        node = Node(data)
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, mark], headless=True)
        try:
            context = browser.new_context()
            context.route("**/page.html", lambda route: route.fulfill(body=PAGE, content_type="text/html"))
            pages = [context.new_page() for _ in range(tabs)]
            for page in pages:
                page.goto(f"http://{node.web}/page.html", timeout=WAIT_MS)
                page.wait_for_function("seen.states.live", timeout=WAIT_MS)
            return _run(node, pages, minutes, mark)
        finally:
            browser.close()
            node.kill()


def _run(node: Node, pages: list[Any], minutes: float, mark: str) -> dict[str, Any]:
    began = time.time()
    until = began + 60 * minutes
    command = [sys.executable, "-m", "bench.tunnel_soak", "--publish", node.native, str(until)]
    publishing = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    sessions = [page.context.new_cdp_session(page) for page in pages]
    memory: list[dict[str, float]] = []
    kills, killed_at = 0, began
    while time.time() < until:
        time.sleep(SAMPLE_S)
        for session in sessions:
            session.send("HeapProfiler.collectGarbage")
        heaps = [page.evaluate("performance.memory.usedJSHeapSize") for page in pages]
        row = {"browser_mib": browser_bytes(mark) / 2**20, "heap_mib": statistics.median(heaps) / 2**20}
        memory.append({"at_s": time.time() - began, **row})
        print(json.dumps({name: round(value, 2) for name, value in memory[-1].items()}), flush=True)
        if time.time() - killed_at >= KILL_S:
            node.kill()
            node.start()
            kills, killed_at = kills + 1, time.time()
    count = int(publishing.communicate()[0])
    for page in pages:
        page.wait_for_function(f"seen.next >= {count}", timeout=WAIT_MS)
    seen = [page.evaluate("seen") for page in pages]
    third = max(1, len(memory) // 3)
    return {
        "events": count,
        "tabs": len(pages),
        "kills": kills,
        "tabs_with_every_event_once": sum(one["count"] == count and not one["wrong"] for one in seen),
        "states": seen[0]["states"],
        **{
            f"{name}_{when}": statistics.median(row[name] for row in rows)
            for name in ("browser_mib", "heap_mib")
            for when, rows in (
                ("second_third", memory[third : 2 * third]),
                ("last_third", memory[2 * third :]),
            )
            if rows
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--tabs", type=int, default=6)
    parser.add_argument("--publish", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.publish:
        publish(args.publish[0], float(args.publish[1]))
        return
    found = soak(args.minutes, args.tabs)
    print(json.dumps({name: round(one, 2) if isinstance(one, float) else one for name, one in found.items()}))
    sys.exit(found["tabs_with_every_event_once"] != found["tabs"])


if __name__ == "__main__":
    main()
