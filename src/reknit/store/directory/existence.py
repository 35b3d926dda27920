"""Which events existed, although neither the log nor the index has them: the rest of the log proves it.

A node stores the events of a source in the order of their seqs, and an outcome after its event. So a batch, or an
outcome, proves that every earlier event of its source was stored, unless a record says that it never arrived. The head
of a damaged batch is believed where it fits exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from xxhash import xxh3_64_intdigest

from reknit.batch_layout import Head, parse_head
from reknit.errors import MalformedFrame
from reknit.frame import PREFIX_BYTES
from reknit.ledger import Account, Ledger, Series
from reknit.seqset import SeqSet


def proven_events(ledger: Ledger, indexed_last: Mapping[Series, int]) -> dict[Series, SeqSet]:
    """The events that existed and are neither published nor skipped in the ledger.

    `indexed_last` has the last event of each series that was known before the damage.

    >>> ledger = Ledger()
    >>> for start, stop in ((1, 5), (8, 9)):
    ...     ledger.publish("plant/a", b"s" * 16, start, stop)
    >>> list(proven_events(ledger, {("plant/a", b"s" * 16): 4}).values())
    [SeqSet.from_ranges([(5, 8)])]
    """
    named = _named(ledger)
    known = {*ledger.published, *named}
    topics = Counter(source for _, source in known)
    missing = {}
    for series in sorted(known):
        existing, proven = ledger.existing(series), named.get(series, SeqSet()).copy()
        last = max(existing.last, proven.last)
        first = indexed_last.get(series, min(existing.first or last, proven.first or last) - 1) + 1
        if topics[series[1]] == 1 and first <= last:  # otherwise a seq may belong to another topic
            proven.add(first, last + 1)
        if rest := proven.difference(existing):
            missing[series] = rest
    return missing


def continuing_head(ledger: Ledger, damaged: bytes) -> Head | None:
    """The head of a damaged batch, if it can be believed: it is well-formed, and continues a known series.

    Nothing behind the last batch of a source proves it. Its events were acknowledged, so their seqs must not be used
    for others.
    """
    seed = int.from_bytes(damaged[:8], "little")
    checksum = xxh3_64_intdigest(damaged[PREFIX_BYTES:], seed=seed).to_bytes(8, "little")
    try:
        head = parse_head(damaged[:8] + checksum + damaged[PREFIX_BYTES:])
    except MalformedFrame:
        return None
    known = ledger.existing((head.topic, head.source))
    is_next = head.length == len(damaged) and known and head.first == known.last + 1
    return head if is_next else None


def _named(ledger: Ledger) -> dict[Series, SeqSet]:
    """The events of which a subscriber has an outcome or an attempt."""
    named: dict[Series, SeqSet] = {}
    for account in ledger.accounts.values():
        for series in {*account.ends, *account.tallies}:
            named[series] = named.get(series, SeqSet()).union(_of_account(account, series))
    return named


def _of_account(account: Account, series: Series) -> SeqSet:
    seqs = account.ended(series)
    for seq in account.tallies.get(series, {}):
        seqs.add(seq, seq + 1)
    return seqs
