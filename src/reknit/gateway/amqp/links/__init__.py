"""The links of one client. `link_table.py` attaches them; `incoming.py` and `outgoing.py` are one link each.

Links share the services in `services.py`: the client's rights and intake, the turns of its connection, the way into
the node. May import `codec/`, `deliveries.py` and `node_client.py`, but not the connection.
"""
