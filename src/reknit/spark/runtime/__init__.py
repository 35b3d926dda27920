"""Starts Spark: finds a Java that it runs on (`java`), and builds a session with tested settings (`session`).

Imports nothing of the other rooms. Open `session.py` first.
"""
