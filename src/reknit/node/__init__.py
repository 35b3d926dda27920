"""A node: stores events in a journal, and delivers them to subscribers, other nodes and gateways.

`node.py` puts the parts together: `core/` decides, `peers/` are its connections, `links/`, `replication/` and
`recovery/` speak with other nodes, `anycast/` and `streams/` deliver to one of many, `admin/` answers requests. A part
never imports the whole: it is given what it needs. This package may import `connection` and everything below it, never
`client` or `gateway`; gateways know it through `api.py`, and `reknit.server` builds it. Open `node.py` first.
"""
