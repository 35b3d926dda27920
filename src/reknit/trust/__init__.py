"""Trust: who somebody is, and what they may do. Every door of a node asks the same gate.

`gate.py` answers both questions, `rules.py` reads what is allowed, and `refusals.py` counts what was refused. Nothing
here does I/O beyond reading the files that the settings name. Imports: values and `config` only.
"""
