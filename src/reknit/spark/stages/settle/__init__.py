"""Settle: each event once and in order, gaps found, filled from caches, or named as losses.

Works on ranges, never on payloads. May import lake, and `spark`'s own connection. Open `decisions.py` first:

decisions      what becomes of each range: settled, held, gap, lost or late
recover        asks nodes and archives for the events of a gap
fingerprints   finds settled events that repeat the fingerprint of another
run            one run on a lake: read, decide, recover, commit
newly_settled  what the stages after settle have not processed yet
expand         from ranges to events
"""

from reknit.spark.stages.settle.decisions import candidates, covered, decide, settle

__all__ = ["candidates", "covered", "decide", "settle"]
