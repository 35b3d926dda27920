"""Dispatching: every subscriber gets every matching event at least once, or a dead letter says why not.

`dispatcher.py` is the machine: its table says what each input leads to, and which file does it. It works on the queues
of `protocol/queues/`, one for each subscriber.

May import nouns, `config`, `wire`, and the modules of `protocol/`. Open `dispatcher.py` first.
"""
