"""The AMQP 1.0 gateway: foreign clients send to topics and receive from them.

From the socket inwards: `server.py` listens, `connection.py` runs SASL and then proton's engine, `links.py` attaches
the client's links, `incoming.py` and `outgoing.py` are one link each, and `node_client.py` is the way into the node.
`messages.py` translates messages into events and back. Only `engine.py` and `deliveries.py` touch proton. Nothing here
imports another gateway. Open `connection.py` first.
"""
