"""What is fuzzed: one module a target. `target.py` says what a target is, and is the one to open first."""
