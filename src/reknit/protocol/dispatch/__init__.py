"""Dispatching: every subscriber gets every matching event at least once, or a dead letter says why not.

`dispatcher.py` is the machine: its table says what each input leads to, and which file does it. `queue.py` is one
subscriber's queue; its table says which part owns what. `unsettled.py` alone changes how many events are in flight.

May import nouns, `config`, `wire`, and the modules of `protocol/`. Open `dispatcher.py` first, then `queue.py`.
"""
