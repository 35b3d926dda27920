"""Whole fabrics in virtual time: real nodes, gateways and clients on a deterministic event loop, with faults.

`fabric.py` puts one together: `plans/` says what runs in it and what goes wrong, `virtual/` has its event loop,
machines, network and disks, `programs/` the clients, and `checks/` what must hold.
Open `fabric.py` first. It may import everything but `cli`.
"""
