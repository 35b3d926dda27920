"""Anycast: events of topics with a distribution go to one of many subscribers, and the publisher is told the outcome.

The machine in `reknit.protocol.anycast` decides; this room gives it the journal, connections, gateways and the ledger.
It may import `node/core`, `node/streams` and `node/replication`. It meets links through the core
(`node/core/parts.py`). Start with `anycast.py`; gateways use `gateway_api.py`.
"""
