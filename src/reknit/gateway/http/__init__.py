"""The HTTP gateway: mod_pubsub at `/kn`, Server-Sent Events at `/sse`, WebSocket at `/ws`, `POST /cloudevents`.

A request is answered by a page (`pages.py`). Some answers stay open and become tunnels, which one reader of the
journal feeds (`feed.py`). Open `server.py` first: it is the only module that knows all parts.
"""
