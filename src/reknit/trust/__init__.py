"""Trust: who somebody is, and what they may do. Every door of a node asks the same gate.

`gate.py` answers both questions: `tokens.py` knows who somebody is, and `rules.py` what is allowed. `refusals.py` counts
what was refused, `logins.py` ends identities that no longer hold, and `attempts.py` slows down those who guess. Nothing
here does I/O beyond the files that the settings name. Imports: values and `config` only.
"""
