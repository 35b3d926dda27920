"""Write the pages of docs/reference that are generated from code. With --check, fail if one is out of date."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs" / "reference"


def cli() -> str:
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    from reknit.cli.main import app

    command: Any = get_command(app)
    context = command.make_context("reknit", [], resilient_parsing=True)
    text: str = get_docs_for_click(obj=command, ctx=context, name="reknit")
    for line in first_lines(command):  # typer shortens them in lists of commands
        text = re.sub(rf"(?m)^(\* `[\w-]+`: ){cut(line)}$", rf"\g<1>{line}", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def first_lines(command: Any) -> Iterator[str]:
    """The first line of the help of every command under this one."""
    for sub in getattr(command, "commands", {}).values():
        yield (sub.help or "").partition("\n")[0]
        yield from first_lines(sub)


def cut(line: str) -> str:
    """A pattern for any beginning of a line that ends with a whole word."""
    words = [re.escape(word) for word in line.split()]
    beginnings = [" ".join(words[:count]) for count in range(1, len(words))]
    return f"(?:{'|'.join(reversed(beginnings))})[^\\w]*" if beginnings else re.escape(line)


def configuration() -> str:
    from reknit.config import describe

    lines = [
        "# Configuration",
        "",
        "Defaults, then a file (`--config`, `$REKNIT_CONFIG` or `./reknit.toml`), then the environment",
        "(`REKNIT_LIMITS__BATCH_BYTES` is `limits.batch_bytes`), then flags (`--set`); the last one wins. Sizes may",
        "have a unit: `64 KiB`. `reknit config show --toml` writes a file with all of this, `reknit config check`",
        "checks one.",
    ]
    section = ""
    for row in describe():
        title, _, key = row.name.partition(".")
        if title != section:
            section = title
            header = "[[topics]]" if title.startswith("topics") else f"[{title}]"
            lines += ["", f"## `{header}`", "", "| setting | default | |", "| --- | --- | --- |"]
        lines.append(f"| `{key}` | `{row.default}` | {row.doc}; {row.type} |".replace("||", "|"))
    return "\n".join(lines) + "\n"


def http_api() -> str:
    import msgspec

    from reknit.console.api import LIVE, ROOT
    from reknit.console.resources import RESOURCES

    lines = [
        "# The HTTP API",
        "",
        "The figures of a node as JSON, for programs and for [the console](../how-to/console.md). A node that serves",
        f"HTTP (`http.listen`) has them below `{ROOT}`, and describes them at `{ROOT}openapi.json`. Each request is",
        "made with the rights of the one who sends it: `Authorization: Bearer TOKEN`, or a certificate.",
        "",
        'An answer with another status than 200 is `{"code": …, "error": …}` with a google.rpc code and a text. A',
        "POST is JSON (`Content-Type: application/json`).",
    ]
    for one in RESOURCES:
        lines += ["", f"## `{one.method} {ROOT}{one.path}`", "", one.help]
        if one.parameters:
            lines += ["", "| parameter | default | |", "| --- | --- | --- |"]
            for row in one.parameters:
                choices = f": {', '.join(f'`{choice}`' for choice in row.choices)}" if row.choices else ""
                lines.append(
                    f"| `{row.name}` | {f'`{row.default}`' if row.default != '' else ''} | {row.help}{choices} |"
                )
        if one.body is not None:
            fields = ", ".join(f"`{name}`" for name in one.body.__struct_fields__)
            needed = [one.name for one in msgspec.structs.fields(one.body) if one.required]
            rest = (
                f"only {', '.join(f'`{name}`' for name in needed)} is needed"
                if needed
                else "all are optional"
            )
            lines += ["", f"The body has {fields}; {rest}."]
    lines += [
        "",
        f"## `GET {LIVE}`",
        "",
        "Answers as [Server-Sent Events](tunnels.md), whenever they change: `ask=ledger%3Flimit%3D5&ask=summary`",
        "names up to six of the resources above, with their parameters. An event's topic is `live/0` for the first of",
        "them, and its payload is the answer. `/reknit.js` reads it as any stream.",
        "",
        "## `GET /metrics`, `/healthz`, `/readyz`",
        "",
        "The metrics for [Prometheus](../how-to/observe.md#prometheus); 200 while the node runs; 200 while it takes",
        "events, and 503 with the reason while it does not.",
    ]
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli,
    "configuration.md": configuration,
    "http-api.md": http_api,
}


def stale() -> list[str]:
    """The names of the pages that are out of date."""
    return [name for name, page in PAGES.items() if not _is_current(FOLDER / name, page())]


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        found = stale()
        if found:
            sys.exit(f"out of date: {', '.join(found)} in {FOLDER}; run: make docs")
        return
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())


if __name__ == "__main__":
    main()
