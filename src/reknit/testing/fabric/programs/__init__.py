"""The programs of a simulated fabric: each runs on a host of its own, crashes with it, and is started again.

They use the public client API alone, as a user's program does, and tell the `Record` what they did and saw.
Open `program.py` first. A program may import `client` and the simulator's hosts, never a part of a node.
"""
