"""The transports: TCP and TLS, memory within a process, and UDP multicast for groups.

This package imports only values (`reknit/*.py`) and `reknit.wire`. Open `connection.py` first: it has the interface that
`tcp.py` and `memory.py` implement. `servers.py` accepts connections for nodes and gateways. `udp.py` and
`udp_over_tcp.py` carry the datagrams of groups.
"""
