"""Write the pages of docs/reference that come from code; with --check, fail where one is out of date."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "docs" / "reference"


def cli() -> str:
    typer = str(Path(sys.executable).with_name("typer"))
    command = [typer, "reknit.cli.main", "utils", "docs", "--name", "reknit"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() + "\n"


PAGES: dict[str, Callable[[], str]] = {"cli.md": cli}


def main() -> None:
    is_check = sys.argv[1:] == ["--check"]
    stale = [name for name, page in PAGES.items() if not _is_current(FOLDER / name, page(), is_check)]
    if stale:
        sys.exit(f"out of date: {', '.join(stale)} in {FOLDER}; run: make docs")


def _is_current(path: Path, text: str, is_check: bool) -> bool:
    if not is_check:
        path.write_text(text)
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    main()
