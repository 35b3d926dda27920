"""Groups in a client: programs that send events to each other, each to all, reliably and in order.

It may import `connection`, `transport`, `protocol/multicast`, `protocol/sealing`, `trust` and the message router.

Open `group.py` first: applications use it. `driver.py` runs the machine, `datagrams.py` sends its messages,
`incoming_datagrams.py` reads those of others, and `inbox.py` has the events that the application has not read yet.
`keys.py` reads the keys that the members share. `journal.py` brings a group's events to a node.
"""
