"""mod_pubsub at `/kn`: post an event, route a topic to another, open a tunnel.

`page.py` reads a request and passes it to `notify.py`, `route_requests.py` or `tunnel.py`. Routes are events in the
journal (`router.py`). May import the rest of `http/` except `server.py` and `pages.py`.
"""
