"""Tunnels for Python programs: events over HTTP that resume where they left off, or an error if they can't.

async with reknit.client.tunnel.open("http://127.0.0.1:8080", "/what/chat") as tunnel:
    async for event in tunnel:
        print(event.payload)

Open `tunnel.py` first; the machine is `protocol/tunnel/client.py`. May import protocol/tunnel, and of client/ only
`http_request`.
"""

from reknit.client.tunnel.events import TunnelEvent, TunnelLost
from reknit.client.tunnel.notify import notify
from reknit.client.tunnel.tunnel import Tunnel, open
from reknit.protocol.tunnel.client_messages import TunnelState as State

__all__ = ["State", "Tunnel", "TunnelEvent", "TunnelLost", "notify", "open"]
