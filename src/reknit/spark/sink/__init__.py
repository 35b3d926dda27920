"""Publishes the rows of a DataFrame to a node, each event once even if a task or micro-batch runs again.

May import the nouns, wire and `spark`'s own options and connection. Open `writers.py` first; `publisher.py` has the
protocol with the node.
"""
