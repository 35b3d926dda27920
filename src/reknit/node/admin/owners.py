"""The owners of sources and durable subscribers, for the admin request `owners`."""

from __future__ import annotations

import heapq
from typing import Any, Final

from reknit.ledger import ANYCAST, Ledger

PAGE_MAX: Final = 10_000
"""Sources in one answer."""


def owners(ledger: Ledger, args: dict[str, Any]) -> dict[str, Any]:
    """A page of the sources that have an owner, from the source after `after` on, and all durable subscribers."""
    after = bytes.fromhex(str(args.get("after", "")))
    limit = min(int(args.get("limit", PAGE_MAX)), PAGE_MAX)
    page = heapq.nsmallest(limit, (source for source in ledger.owners if source > after))
    wanted = set(page)
    topics = {source: topic for topic, source in ledger.published if source in wanted}
    return {
        "sources": [
            {"source": source.hex(), "topic": topics.get(source, ""), "owner": ledger.owners[source]}
            for source in page
        ],
        "subscribers": [
            {"subscriber": name, "pattern": account.pattern.text, "owner": account.owner}
            for name, account in sorted(ledger.accounts.items())
            if account.owner and not name.startswith(ANYCAST)
        ],
    }
