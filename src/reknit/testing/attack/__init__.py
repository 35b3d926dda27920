"""Attacks on a node with rules: every door, every action, every credential, and the ways around the rules.

`target.py` is the node, `credentials.py` are those who come, `doors.py` has everything that can be tried at each door,
`matrix.py` tries all of it, and `ways.py` are attacks that no single request shows. What counts is what happened:
whether an event is in the journal, and whether a secret came out. The package may import `client`.
"""
