"""`reknit audit`: who did, or tried, what on a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from reknit.cli.options import NodeUrl
from reknit.cli.output import log_to_stderr, plain

if TYPE_CHECKING:
    from reknit.audit import AuditEntry

Follow = Annotated[bool, typer.Option("--follow", help="Go on printing new entries, until Ctrl-C.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per entry.")]


def audit(follow: Follow = False, json: AsJsonLines = False, node: NodeUrl = "") -> None:
    """Print the audit trail: logins, refusals, orders of admins and changes of rules, tokens and certificates.

    It needs the right to subscribe to reknit/audit. A node writes it where there are rules or tokens (security.audit).
    """
    from reknit.cli.running import run

    log_to_stderr()
    run(_print(node, follow, json))


async def _print(url: str, follow: bool, json: bool) -> None:
    from reknit.audit import AUDIT_TOPIC, read_entry
    from reknit.cli.running import connected

    async with connected(url) as session:
        left: dict[bytes, int] = {}
        for text, last in (await session.ask("checkpoint", pattern=AUDIT_TOPIC)).items():
            source = bytes.fromhex(text)
            found = await session.ask("find", topic=AUDIT_TOPIC, source=source, start=last, stop=last)
            if found["first_held"] <= last:
                left[source] = last
        if not left and not follow:
            return
        async with session.subscribe(AUDIT_TOPIC, history=True) as events:
            async for event in events:
                payload = bytes(event.payload)
                typer.echo(payload.decode() if json else _line(read_entry(payload)))
                if event.seq >= left.get(event.source, event.seq + 1):
                    del left[event.source]
                    if not left and not follow:
                        return


def _line(entry: AuditEntry) -> str:
    """An entry for people."""
    from reknit.cli.events.event_output import iso

    what = entry.kind if entry.kind == entry.action else f"{entry.kind} {entry.action}"
    often = f" {entry.count} times" if entry.count > 1 else ""
    place = " from ".join(part for part in (entry.door, entry.address) if part)
    more = " ".join(f"{name}={value}" for name, value in entry.details.items())
    about = f"{entry.events} events" if entry.events else ""
    parts = (iso(entry.time_us), entry.who, f"{what}{often}", entry.code, place, more, about, entry.text)
    return "  ".join(plain(part) for part in parts if part)
