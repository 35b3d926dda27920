"""Who owns which source and which durable subscriber, as admins ask for it."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from reknit.ledger import ANYCAST, Ledger

PAGE_MAX: Final = 1_000


def owners(ledger: Ledger, args: dict[str, Any]) -> dict[str, Any]:
    """A page of the sources that have an owner, from the source after `after` on, and all durable subscribers."""
    after = bytes.fromhex(str(args.get("after", "")))
    limit = min(int(args.get("limit", PAGE_MAX)), PAGE_MAX)
    topics = {source: topic for topic, source in ledger.published}
    found = (source for source in sorted(ledger.owners) if source > after)
    return {
        "sources": [
            {"source": source.hex(), "topic": topics.get(source, ""), "owner": ledger.owners[source]}
            for source in islice(found, limit)
        ],
        "subscribers": [
            {"subscriber": name, "pattern": account.pattern.text, "owner": account.owner}
            for name, account in sorted(ledger.accounts.items())
            if account.owner and not name.startswith(ANYCAST)
        ],
    }
