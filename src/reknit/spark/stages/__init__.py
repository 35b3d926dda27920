"""The stages of the pipeline, each a function over the lake's tables with commits of its own.

capture → settle → events, dead_letters; audit and redrive run on demand. May import source, sink and lake. Open
`capture.py` first, then `settle/`.
"""
