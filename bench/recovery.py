"""Recovery beside Zenoh's advanced publisher and subscriber, in one run: `python -m bench.recovery`.

Publisher and subscriber are processes on loopback. Events have 100 bytes, and both sides handle single events:

    late joiner   N events are held when a subscriber starts: from its call until it has all of them
    missed        N events were missed when the next one is published: from its publication until all have arrived
    outage        the node (the router) is down while N events are published: from the moment at which it listens again
                  until all have arrived

Zenoh has its cache in the publisher, as deep as the case needs, and detects the gap by the next sample. reknit has its
journal on disk and syncs it. Zenoh's subscriber misses events through an outage of its router, that of reknit by
dropping deliveries. On a busy machine look at the CPU time, which is that of all processes of a case.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator

from bench import recovery_reknit, recovery_zenoh
from bench.goals import Verdict
from bench.recovery_actors import Result
from bench.results import Row, merge

PEER = "zenoh advanced"
AHEAD = 3.0
"""The goal, as a multiple of Zenoh's speed."""

CASES: list[tuple[str, int, Callable[[int], Result], Callable[[int], Result]]] = [
    ("late joiner", 10_000, recovery_reknit.late, recovery_zenoh.late),
    ("late joiner", 100_000, recovery_reknit.late, recovery_zenoh.late),
    ("missed", 10_000, recovery_reknit.missed, recovery_zenoh.missed),
    ("missed", 100_000, recovery_reknit.missed, recovery_zenoh.missed),
    ("outage", 100_000, recovery_reknit.outage, recovery_zenoh.outage),
]

Found = dict[tuple[str, str], list[Result]]
"""The results of all rounds, by case and subject."""


def title(name: str, count: int) -> str:
    return f"{name} {count:,}"


def measure(rounds: int) -> Found:
    """Run all cases in turn, both subjects of a case right after one another."""
    found: Found = {}
    for number in range(rounds):
        for name, count, ours, theirs in CASES:
            print(f"round {number + 1}: {title(name, count)}", file=sys.stderr)
            for subject, case in ((PEER, theirs), ("reknit", ours)):
                found.setdefault((title(name, count), subject), []).append(case(count))
    return found


def ratio(mine: list[Result], theirs: list[Result]) -> float:
    """The median of their time over ours in the same round."""
    return statistics.median(other.seconds / one.seconds for one, other in zip(mine, theirs, strict=True))


def rows_of(found: Found) -> Iterator[Row]:
    """The figures as rows of `bench/results.json`."""
    for (case, subject), results in found.items():
        rounds = tuple(round(one.seconds * 1e3, 2) for one in results)
        ahead = None if subject == "reknit" else float(f"{ratio(found[case, 'reknit'], results):.3g}")
        yield Row(f"recovery: {case}", subject, statistics.median(rounds), "ms", ahead, rounds)


def verdicts(found: Found) -> Iterator[Verdict]:
    """The goals, and whether they are met."""
    for name, count, _, _ in CASES:
        case = title(name, count)
        mine = found[case, "reknit"]
        ahead = float(f"{ratio(mine, found[case, PEER]):.3g}")
        yield Verdict(f"{case}: ≥ {AHEAD:g}x as fast as Zenoh", ahead, ahead >= AHEAD)
    bad = sum(one.missing + one.wrong for (_, who), rows in found.items() if who == "reknit" for one in rows)
    yield Verdict("recovery: events missing, twice or out of order", bad, bad == 0)


def show(found: Found) -> Iterator[str]:
    """A table: median, best, CPU time of all processes, and wrong events."""
    yield "| case | subject | median | best | CPU | missing | out of order |"
    yield "|---|---|---|---|---|---|---|"
    for (case, subject), results in found.items():
        seconds = [one.seconds for one in results]
        times = (statistics.median(seconds), min(seconds), statistics.median(one.cpu_s for one in results))
        wrong = (max(one.missing for one in results), max(one.wrong for one in results))
        cells = (case, subject, *(f"{one * 1e3:.1f} ms" for one in times), *map(str, wrong))
        yield "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure, print, and merge the figures into the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="the number of rounds")
    found = measure(parser.parse_args().rounds)
    print("\n".join(show(found)))
    judged = list(verdicts(found))
    for verdict in judged:
        print(f"{'met   ' if verdict.is_met else 'missed'} {verdict.title}: {verdict.value:g}")
    merge(rows_of(found), judged)


if __name__ == "__main__":
    main()
