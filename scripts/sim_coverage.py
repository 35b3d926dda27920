"""Print which part of the code the simulations run: `make sim-coverage SEEDS=500 FABRICS=500`."""

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import coverage

ROOT = Path(__file__).parent.parent / "src/reknit"
PACKAGES = ("protocol", "node", "client", "gateway/http", "gateway/amqp")
CHUNK = 25


def measured(task: tuple[str, int, int]) -> dict[str, list[int]]:
    """Run seeds `[start, stop)` of a simulation. Returns the lines of every file that were run."""
    kind, start, stop = task
    recorder = coverage.Coverage(data_file=None, include=[f"{ROOT}/*"])
    with recorder.collect():
        # Imported here, so that lines that run on import count too.
        if kind == "core":
            from reknit.testing.simulation import run
        else:
            from reknit.testing.fabric.run import run  # type: ignore[assignment]
        bad = [seed for seed in range(start, stop) if not run(seed).is_good]
    if bad:
        print(f"{kind} seeds that fail: {bad}", file=sys.stderr)
    data = recorder.get_data()
    return {path: list(data.lines(path) or []) for path in data.measured_files()}


def tasks(kind: str, count: int) -> Iterator[tuple[str, int, int]]:
    for start in range(0, count, CHUNK):
        yield kind, start, min(start + CHUNK, count)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=500, help="seeds of the core's simulation (default: 500)"
    )
    parser.add_argument("--fabrics", type=int, default=500, help="seeds of whole fabrics (default: 500)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--missing", action="store_true", help="list the lines that did not run")
    arguments = parser.parse_args()
    lines: dict[str, set[int]] = {}
    work = [*tasks("core", arguments.seeds), *tasks("fabric", arguments.fabrics)]
    # Each task has a process of its own: what is imported once is not measured again.
    with ProcessPoolExecutor(arguments.processes, max_tasks_per_child=1) as pool:
        for found in pool.map(measured, work):
            for path, numbers in found.items():
                lines.setdefault(path, set()).update(numbers)
    for package in PACKAGES:
        report(package, lines, arguments.missing)
    return 0


def report(package: str, lines: dict[str, set[int]], lists_missing: bool) -> None:
    """Print the share of a package's lines that ran."""
    parser = coverage.Coverage(data_file=None)
    total = covered = 0
    for path in sorted((ROOT / package).rglob("*.py")):
        _, statements, _, _, _ = parser.analysis2(str(path))
        missing = set(statements) - lines.get(str(path), set())
        total, covered = total + len(statements), covered + len(statements) - len(missing)
        if lists_missing and missing:
            print(f"  {path.relative_to(ROOT)}: {' '.join(map(str, sorted(missing)))}")
    print(f"{package:<14} {covered:>6} of {total:>6} lines  {100 * covered / max(total, 1):5.1f} %")


if __name__ == "__main__":
    sys.exit(main())
