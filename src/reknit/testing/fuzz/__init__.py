"""Fuzzers: mutated messages, requests, frames and files, tried on a real node and on its parts.

`python -m reknit.testing.fuzz` runs a campaign. `capture.py` has the valid conversations that inputs are made from,
`mutations.py` how they are changed, `targets/` one module for each thing that is fuzzed, and `canary.py` the program
beside them that must not notice. Open `targets/target.py` first.
"""
