"""Gateways translate a foreign protocol into events, and events back. They hold no delivery logic.

One package per protocol: `http/` (mod_pubsub, Server-Sent Events, WebSocket, CloudEvents), `amqp/` (AMQP 1.0) and
`zenoh/`. They may import everything below them: nouns, config, wire, protocol, store, transport, client and the
modules of node that offer an interface. They do not import each other. `access.py` is shared: the rights to read and
write topics. Open a package's `server.py` or `gateway.py` first.
"""
