"""One connection to a node: used by clients, and by nodes that connect to other nodes as a client does.

It may import nouns, config, wire, protocol and transport; it knows neither `client` nor `node`.

Open `node_connection.py` first: it connects, introduces itself, keeps the connection alive and opens it again.
`publish_driver.py` publishes until the node acknowledges. `admin_requests.py` matches replies with requests.
`remote_cache.py` recovers events from a further node over a connection of its own.
"""
