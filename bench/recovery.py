"""Recovery beside Zenoh's advanced publisher and subscriber, in one run: `python -m bench.recovery`.

Publisher and subscriber are processes on loopback. Events have 100 bytes, and both sides handle single events. The fair
cases are the same course for both, with default limits and asyncio's own loop; both subscribers go through a proxy:

    late joiner   N events are held when a subscriber starts: from its call until it has all of them
    cut           the proxy cuts the subscriber's link while N events are published: from the moment at which the link is
                  whole again until all have arrived. A further event every 20 ms shows what is missing
    outage        the same, but the node (the router) is killed: from the moment at which it listens again

The older cases have uvloop and 64 MiB of credit for reknit:

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
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from bench import recovery_fair, recovery_reknit, recovery_zenoh
from bench.goals import Verdict
from bench.recovery_actors import Result
from bench.results import Row, merge
from reknit.errors import LocalError

PEER = "zenoh advanced"
TRIES = 5
AHEAD = 3.0
"""The goal, as a multiple of Zenoh's speed."""

Case = tuple[str, int, Callable[[int], Result], Callable[[int], Result]]
"""Its name, the number of events, our side and Zenoh's."""

CASES: list[Case] = [
    *(
        (f"fair {name}", count, partial(case, True), partial(case, False))
        for name, count, case in (
            ("late joiner", 100_000, recovery_fair.late),
            ("cut", 10_000, recovery_fair.cut),
            ("cut", 100_000, recovery_fair.cut),
            ("outage", 100_000, recovery_fair.outage),
        )
    ),
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


def measure(cases: Sequence[Case], rounds: int) -> Found:
    """Run the cases in turn, both subjects of a case right after one another."""
    found: Found = {}
    for number in range(rounds):
        for name, count, ours, theirs in cases:
            print(f"round {number + 1}: {title(name, count)}", file=sys.stderr)
            for subject, case in ((PEER, theirs), ("reknit", ours)):
                found.setdefault((title(name, count), subject), []).append(_tried(case, count))
    return found


def _tried(case: Callable[[int], Result], count: int) -> Result:
    """On a busy machine a node may not be up in time: then the case is run again."""
    for _ in range(TRIES - 1):
        try:
            return case(count)
        except (LocalError, TimeoutError) as error:
            print(f"again: {error}", file=sys.stderr)
    return case(count)


def ratio(mine: list[Result], theirs: list[Result]) -> float:
    """The median of their time over ours in the same round."""
    return statistics.median(other.seconds / one.seconds for one, other in zip(mine, theirs, strict=True))


def rows_of(found: Found) -> Iterator[Row]:
    """The figures as rows of `bench/results.json`."""
    for (case, subject), results in found.items():
        rounds = tuple(round(one.seconds * 1e3, 2) for one in results)
        ahead = None if subject == "reknit" else float(f"{ratio(found[case, 'reknit'], results):.3g}")
        yield Row(f"recovery: {case}", subject, statistics.median(rounds), "ms", ahead, rounds)


def verdicts(cases: Sequence[Case], found: Found) -> Iterator[Verdict]:
    """The goals, and whether they are met."""
    for name, count, _, _ in cases:
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
    parser.add_argument("--fair", action="store_true", help="only the fair cases")
    arguments = parser.parse_args()
    cases = [case for case in CASES if not arguments.fair or case[0].startswith("fair")]
    found = measure(cases, arguments.rounds)
    print("\n".join(show(found)))
    judged = list(verdicts(cases, found))
    for verdict in judged:
        print(f"{'met   ' if verdict.is_met else 'missed'} {verdict.title}: {verdict.value:g}")
    merge(rows_of(found), judged)


if __name__ == "__main__":
    main()
