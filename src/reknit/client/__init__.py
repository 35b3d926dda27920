"""The client: connect, publish, subscribe, request, serve and join groups; async, and a blocking interface to the same.

It may import nouns, config, wire, protocol, transport and `connection`, never `node`.

Open `session.py` first: it makes all other parts. They do not know it; they get the message router, which passes them
the node's messages. Rooms: `publish/`, `subscribe/`, `recovery/`, `rpc/`, `group/`, and `blocking/` for programs
without asyncio. `tunnel.py` reads events over HTTP, without a session.

Imports point one way: options, message_router ← streams, recovery ← publish, subscribe ← rpc; these and group ←
session ← blocking.
"""
