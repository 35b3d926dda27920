"""Whole fabrics in virtual time: real nodes, gateways and clients on a deterministic event loop, with faults.

`fabric.py` puts one together: `loop.py` is its event loop, `hosts.py` the machines that crash, freeze and have clocks
and disks of their own, `network.py`, `streams.py` and `datagrams.py` the network between them, `disk.py` their files.
Open `fabric.py` first. It may import everything but `cli`.
"""
