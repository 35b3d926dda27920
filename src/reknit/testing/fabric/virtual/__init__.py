"""What a seed decides instead of the machine: time, network, disks and threads.

Open `loop.py` first: the event loop with virtual time. A host (`hosts.py`) has an address, a clock and a disk.
"""
