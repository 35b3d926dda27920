"""What must hold in every run of a fabric. Each check is a function, and its first line is the sentence it promises.

Open `events.py` first: it has the checks of all events, and the list of all checks. The others are by capability.
"""
