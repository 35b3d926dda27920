"""Chaos as a command.

python -m reknit.testing.chaos                          ten minutes with a random seed
python -m reknit.testing.chaos --seed 7 --minutes 2     the plan of a seed, shorter
python -m reknit.testing.chaos --without spark,zenoh    a fabric without these parts
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from reknit.testing.chaos.campaign import Campaign, Result
from reknit.testing.chaos.fabric import PARTS
from reknit.testing.chaos.machine import enter_namespace, survey
from reknit.testing.chaos.report import figures, report_html

SHOWN_MAX = 30


def main(argv: Sequence[str] | None = None) -> int:
    """Run a campaign. Returns the exit code: 1 if an event is unaccounted for, or anything else was found."""
    arguments = _parser().parse_args(argv)
    if arguments.seed is None:
        arguments.seed = random.randrange(1_000_000)
    if not arguments.no_namespace:
        enter_namespace("reknit.testing.chaos", [*(argv or sys.argv[1:]), "--seed", str(arguments.seed)])
    machine = survey()

    def say(text: str) -> None:
        print(text, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    if text := machine.text():
        say(f"this machine: {text}")
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="reknit-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(
        folder,
        machine,
        seed=arguments.seed,
        seconds=arguments.minutes * 60,
        nodes=arguments.nodes,
        without=arguments.without,
        say=say,
        every_s=arguments.every,
    )
    say(str(campaign.plan))
    if arguments.plan:
        return 0
    return _report(campaign.run(), arguments, folder, say)


def _report(result: Result, arguments: argparse.Namespace, folder: Path, say: object) -> int:
    if arguments.report:
        arguments.report.write_text(report_html(result), encoding="utf-8")
    summary = figures(result)
    if arguments.json:
        print(json.dumps(summary, indent=2))
    else:
        for name, value in summary.items():
            if name != "findings":
                print(f"{name.replace('_', ' ')}: {value}")
        for finding in result.findings[:SHOWN_MAX]:
            print(f"FINDING {finding}")
        verdict = f"{len(result.findings)} findings" if result.findings else "every event is accounted for"
        print(f"seed {result.plan.seed}: {verdict}; logs and records are in {folder}")
    return 1 if result.findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reknit.testing.chaos",
        description="Break a fabric of real processes, heal it, and account for every event.",
    )
    parser.add_argument("--seed", type=int, help="the plan's seed (default: a random one)")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults happen (default: 10)")
    parser.add_argument("--nodes", type=int, default=5, help="linked nodes (default: 5)")
    parser.add_argument(
        "--every", type=float, default=5.0, help="seconds between faults, on average (default: 5)"
    )
    parser.add_argument(
        "--without", type=_parts, default=(), metavar="PART,…", help=f"some of {', '.join(PARTS)}"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write an HTML page")
    parser.add_argument(
        "--folder", type=Path, help="where journals, logs and records go (default: a new one)"
    )
    parser.add_argument("--plan", action="store_true", help="only print the plan")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--no-namespace", action="store_true", help="use this machine's own network, so that it is never down"
    )
    return parser


def _parts(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    if unknown := set(names) - set(PARTS):
        raise argparse.ArgumentTypeError(f"{unknown.pop()!r} is not one of {', '.join(PARTS)}")
    return names


if __name__ == "__main__":
    began = time.monotonic()
    sys.exit(main())
