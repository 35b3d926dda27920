"""Runs all stages on one lake, shows their progress, and draws the audit page.

May import everything else in `spark`. Open `pipeline.py` first; `declarative.py` defines the same stages for
`spark-pipelines run`.
"""
