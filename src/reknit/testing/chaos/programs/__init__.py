"""The clients of a chaos campaign: programs that can be killed at any moment, and resume from their own records.

Each is run as `python -m reknit.testing.chaos.programs.<name>`. Publishers end when they find the file `stop`. Open
`native.py` first: `web.py`, `amqp.py` and `zenoh.py` do the same with other protocols.
"""
