"""Tunnels over HTTP: mod_pubsub at `/kn`, Server-Sent Events at `/sse`, WebSocket at `/ws`."""
