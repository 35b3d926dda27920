"""The fuzzers as a command.

python -m reknit.testing.fuzz                                    20,000 inputs over all targets
python -m reknit.testing.fuzz --target tcp --inputs 100000       many inputs for one
python -m reknit.testing.fuzz --minutes 1 --json                 for a minute, with a report for programs
python -m reknit.testing.fuzz --replay fuzz-found/tcp-1-77.json  one input that was found
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from reknit.testing.fuzz.findings import Advance, Finding, TargetReport
from reknit.testing.fuzz.inputs import load
from reknit.testing.fuzz.local_campaign import LocalCampaign, tried
from reknit.testing.fuzz.node_campaign import NodeCampaign
from reknit.testing.fuzz.retrial import Retrial
from reknit.testing.fuzz.targets.all import LOCAL, NAMES, left_out, local_target, parts_of, port_target

INPUTS: Final = 20_000
FOLDER: Final = Path("fuzz-found")
SHOWN_LINES_MAX: Final = 40


def main(argv: Sequence[str] | None = None) -> int:
    """Run a campaign, or replay an input. Returns the exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.replay is not None:
        return replay(arguments.replay)
    names = NAMES if arguments.target == "all" else (arguments.target,)
    reports = campaign(names, arguments.inputs, arguments.seed, arguments.minutes * 60, arguments.found)
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(reports)).decode())
    else:
        for report in reports:
            print(report.describe())
        for finding in (finding for report in reports for finding in report.findings):
            print(_explained(finding))
    return 1 if any(report.findings for report in reports) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reknit.testing.fuzz",
        description="Send mutated messages, requests and files to a node and its parts, with a canary beside.",
    )
    parser.add_argument(
        "--target", choices=(*NAMES, "all"), default="all", help="what to fuzz (default: all)"
    )
    parser.add_argument(
        "--inputs",
        type=int,
        default=INPUTS,
        help="the number of inputs, over all targets (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed of the inputs (default: 0)")
    parser.add_argument(
        "--minutes", type=float, default=24 * 60.0, help="stop after so many minutes, even if inputs are left"
    )
    parser.add_argument(
        "--found",
        type=Path,
        default=FOLDER,
        metavar="DIR",
        help="where failing inputs are saved (default: %(default)s)",
    )
    parser.add_argument(
        "--replay", type=Path, metavar="FILE", help="try one saved input, and print what it does"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def campaign(
    names: Sequence[str], inputs: int, seed: int, seconds_max: float, folder: Path
) -> list[TargetReport]:
    """Fuzz each target with its share of the inputs and of the time."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    reports: list[TargetReport] = []
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        for name, part in parts_of(names).items():
            count = ceil(inputs * part)
            advance = partial(progress.advance, progress.add_task(name, total=count))
            reports.append(_run(name, seed, folder, advance, count, seconds_max * part))
    return reports


def _run(name: str, seed: int, folder: Path, advance: Advance, count: int, seconds: float) -> TargetReport:
    if name in LOCAL:
        return LocalCampaign(name, seed, folder, advance).run(count, seconds)
    target = port_target(name)
    if target is None:
        return TargetReport(name, left_out=left_out(name))
    return NodeCampaign(target, seed, folder, advance).run(count, seconds)


def _explained(finding: Finding) -> str:
    lines = finding.text.strip().splitlines()[-SHOWN_LINES_MAX:]
    shown = "\n".join(f"  {line}" for line in lines)
    return f"\n{finding.target}: {finding.what}\n{shown}\nreplay it: {finding.command}"


def replay(path: Path) -> int:
    """Try a saved input, print its steps and what they do. Returns 1 if something is wrong."""
    found = load(path)
    print(f"{found.target}, input {found.number} of seed {found.seed}:\n{found.describe()}")
    if found.target in LOCAL:
        with local_target(found.target) as target:
            texts = [tried(target, found)]
    else:
        played = port_target(found.target)
        if played is None:
            print(left_out(found.target))
            return 1
        with Retrial(played) as retrial:
            texts = retrial.effects(found)
    wrong = [text for text in texts if text]
    print("\n".join(wrong) or "nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
