"""`reknit group`: join a group, send events to it, and list its members.

A group needs no node; with one, the node stores the group's events. `commands.py` and `network.py` import nothing
heavy; `membership.py` does the work when a command runs. `keys.py` has the commands for a group's keys, and
`key_file.py` their work. It may import `client` and `transport`.
"""
