"""Trust: who somebody is, and what they may do. Every door of a node asks the same gate.

`gate.py` answers both questions: `tokens.py` knows who somebody is, `rules.py` what is allowed, and `refusals.py` counts
what was refused. Nothing here does I/O beyond the files that the settings name. Imports: values and `config` only.
"""
