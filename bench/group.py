"""A group of three members, one of which sends events of 1,000 bytes. Both sides handle single events.

    python -m bench.group                 every case, as many rounds as fit the time, and the goals
    python -m bench.group --only "1 %"    the cases with this text in their names

    one host     three processes on loopback
    no loss      three network namespaces over veth and a bridge, in packets of an Ethernet frame's size
    0.1 %, 1 %   the same, and the bridge drops this share of the packets, independently for each receiver
    with a key   the same, with every datagram encrypted and authenticated

The rate is that of the slowest member. There are three busy processes: on a machine with two cores, or one that is busy
otherwise, look at the CPU time per event of the sender and of a reader. Namespaces need root, `ip` and `nft`.

JGroups is not part of the run. Its figures were taken on a machine of this kind, with the same events and members
(UDP, NAKACK4, window of 2,048): 104,000 events/s at every member on one host at best, 67,000 over veth, and 7 % of
that at 1 % loss.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from bench.goals import Verdict
from bench.results import Row, merge
from tests.client.group.namespaces import Namespaces, why_not

JGROUPS_PER_S = 104_000
"""JGroups NAKACK4's best at every member on one host: 3 members, 1,000 B, one sender."""
AHEAD = 3.0
"""The goal, as a multiple of that."""
KEPT_AT_LOSS = 0.5
"""The goal at 1 % loss, as a share of the loss-free rate."""
KEPT_WITH_KEY = 0.85
"""The goal with a key, as a share of the rate without one."""
MEMBERS = 3
SIZE = 1_000
TIMEOUT_S = 60.0


class Case(msgspec.Struct, frozen=True):
    """Where the members are, how many of 1,000 packets are dropped, and how many events are sent."""

    name: str
    events: int
    loss_permille: float | None = None
    """None for loopback, where nothing is dropped."""
    has_key: bool = False


CASES = (
    Case("one host", 400_000),
    Case("one host, with a key", 400_000, has_key=True),
    Case("veth, no loss", 100_000, 0),
    Case("veth, no loss, with a key", 100_000, 0, has_key=True),
    Case("veth, 0.1 % loss", 100_000, 1),
    Case("veth, 1 % loss", 100_000, 10),
)


class Result(msgspec.Struct, frozen=True):
    """One run of a case: the slowest member's rate, and CPU time per event."""

    per_s: int
    sender_us: float
    reader_us: float
    asked: int
    lost: int
    packets_dropped: int


Found = dict[str, list[Result]]


def run(case: Case) -> Result:
    """Run a case: start the members as processes, and collect their figures."""
    if case.loss_permille is None:
        return collect(case, None)
    with Namespaces(MEMBERS, case.loss_permille) as lan:
        return collect(case, lan)


def collect(case: Case, lan: Namespaces | None) -> Result:
    processes = [
        subprocess.Popen(command(case, number, lan), stdout=subprocess.PIPE, text=True)
        for number in range(MEMBERS)
    ]
    try:
        said = [json.loads(process.communicate(timeout=TIMEOUT_S)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return Result(
        per_s=min(one["per_s"] for one in said),
        sender_us=said[0]["cpu_us"],
        reader_us=max(one["cpu_us"] for one in said[1:]),
        asked=sum(one["asked"] for one in said),
        lost=sum(one["lost"] for one in said),
        packets_dropped=0 if lan is None or not case.loss_permille else lan.dropped(),
    )


def command(case: Case, number: int, lan: Namespaces | None) -> list[str]:
    interface = "127.0.0.1" if lan is None else lan.addresses[number]
    words = [sys.executable, "-m", "bench.group_member", "--interface", interface]
    words += ["--group", "239.75.78.85:7476", "--members", str(MEMBERS)]
    words += ["--events", str(case.events), "--size", str(SIZE)]
    words += ["--sender"] if number == 0 else []
    words += ["--key-file", str(key_file())] if case.has_key else []
    return words if lan is None else lan.command(number, *words)


@cache
def key_file() -> Path:
    """A file with a key for this run."""
    path = Path(tempfile.mkdtemp(prefix="bench-group-")) / "keys"
    path.touch(mode=0o600)
    path.write_text(secrets.token_hex(32))
    return path


def measure(cases: list[Case], rounds: int, seconds: float) -> Found:
    """Run all cases in turn, for at most so many rounds. A round that would exceed the time is not started."""
    found: Found = {case.name: [] for case in cases}
    began = time.monotonic()
    for number in range(rounds):
        took = time.monotonic() - began
        if number and took + took / number > seconds:
            break
        for case in cases:
            sys.stderr.write(f"round {number + 1}: {case.name}\n")
            found[case.name].append(run(case))
    return found


# -- the figures


def rate(results: list[Result]) -> float:
    return statistics.median(one.per_s for one in results)


def rows_of(found: Found) -> Iterator[Row]:
    """The figures as rows of `bench/results.json`."""
    for name, results in found.items():
        rounds = tuple(float(one.per_s) for one in results)
        yield Row(f"group: {name}", "reknit", rate(results), "events/s", rounds=rounds)


def verdicts(found: Found) -> Iterator[Verdict]:
    """The goals, and whether they are met."""
    if host := found.get("one host"):
        ahead = float(f"{rate(host) / JGROUPS_PER_S:.3g}")
        title = f"group on one host: ≥ {AHEAD:g}x JGroups' best ({JGROUPS_PER_S:,} events/s)"
        yield Verdict(title, ahead, ahead >= AHEAD)
    free, lossy = found.get("veth, no loss"), found.get("veth, 1 % loss")
    if free and lossy:
        pairs = zip(lossy, free, strict=True)
        kept = float(f"{statistics.median(one.per_s / other.per_s for one, other in pairs):.3g}")
        title = f"group at 1 % loss: ≥ {KEPT_AT_LOSS:g} of its loss-free rate (JGroups: 0.07)"
        yield Verdict(title, kept, kept >= KEPT_AT_LOSS)
    for name in found:
        if keyed := found.get(f"{name}, with a key"):
            pairs = zip(keyed, found[name], strict=True)
            kept = float(f"{statistics.median(one.per_s / other.per_s for one, other in pairs):.3g}")
            title = f"group, {name}: ≥ {KEPT_WITH_KEY:g} of its rate with a key"
            yield Verdict(title, kept, kept >= KEPT_WITH_KEY)
    lost = sum(one.lost for results in found.values() for one in results)
    yield Verdict("group: events lost or out of order", lost, lost == 0)


def show(found: Found) -> Iterator[str]:
    """A table: rates, CPU time per event, dropped packets and retransmission requests."""
    yield "| group of 3, 1,000 B, one sender | median | best | sender | reader | packets dropped | asked |"
    yield "|---|---|---|---|---|---|---|"
    for name, results in found.items():
        rates = (rate(results), max(one.per_s for one in results))
        times = [
            statistics.median(getattr(one, key) for one in results) for key in ("sender_us", "reader_us")
        ]
        cells = [name, *(f"{one:,.0f} events/s" for one in rates), *(f"{one:.2f} µs" for one in times)]
        cells += [f"{statistics.median(one.packets_dropped for one in results):,.0f}"]
        cells += [f"{statistics.median(one.asked for one in results):,.0f}"]
        yield "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure, print, and merge the figures into the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="the highest number of rounds")
    parser.add_argument("--seconds", type=float, default=75.0, help="about how long the whole may take")
    parser.add_argument("--only", default="", help="run only cases with this text in their names")
    args = parser.parse_args()
    cases, why = [case for case in CASES if args.only in case.name], why_not()
    if why:
        left_out = [case.name for case in cases if case.loss_permille is not None]
        cases = [case for case in cases if case.loss_permille is None]
        sys.stdout.write(f"skipped: {', '.join(left_out)}: {why}\n")
    try:
        found = measure(cases, args.rounds, args.seconds)
    finally:
        shutil.rmtree(key_file().parent)
    sys.stdout.write("\n".join(show(found)) + "\n")
    judged = list(verdicts(found))
    for verdict in judged:
        sys.stdout.write(f"{'met   ' if verdict.is_met else 'missed'} {verdict.title}: {verdict.value:g}\n")
    merge(rows_of(found), judged)


if __name__ == "__main__":
    main()
