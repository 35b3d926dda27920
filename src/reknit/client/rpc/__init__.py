"""Requests and services in a client, and events with attributes of uProtocol.

It may import `connection`, `client/subscribe`, `client/publish` and the message router.

Open `requests.py` for the side that asks, `service.py` for the side that answers. `attribute_publisher.py` publishes
events that have attributes, requests and responses among them.
"""
