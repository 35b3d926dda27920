"""The AMQP 1.0 gateway: foreign clients send to topics and receive from them.

From the socket inwards: `server.py` listens, `connection.py` runs SASL and then proton's engine, `links/` holds the
client's links, and `node_client.py` is the way into the node. `codec/` translates messages into events and back. Only
`engine.py` and `deliveries.py` touch proton. Nothing here imports another gateway. Open `connection.py` first.
"""
