"""Measurements of nodes under load, for `reknit.testing.soak` and `reknit.testing.overload`.

`probe.py` measures the latency of a light client and the memory and open files of a process; `slopes.py` says whether
a figure grows. The package may import `client`.
"""
