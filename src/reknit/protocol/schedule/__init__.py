"""Schedules: events that are stored now and published on their topic later, or cancelled before.

May import the nouns and `protocol/machine.py`. Open `schedule.py` first: it is the machine. `node/core/scheduling.py`
writes what it decides into the journal.
"""
