"""The audit: the ledger, from the tables. published = accepted + dead-lettered + lost + in flight.

Both sides are ranges. `segments` aligns them: between two neighbouring bounds of a series, the same batch was
published and the same outcome was recorded (or none). Ledger, time windows, latency and problems are sums over the
segments. May import lake and the stage of dead letters. Open `alignment.py` first:

owed        the events that were published, and the subscribers they are owed to
ends        the outcomes of those events
alignment   both side by side: `segments`
totals      ledger, windows, latency, problems
lake        all of it for one lake, as values
"""

from reknit.spark.stages.audit.alignment import segments
from reknit.spark.stages.audit.owed import accounts
from reknit.spark.stages.audit.totals import latency, ledger, problems, windows

__all__ = ["accounts", "latency", "ledger", "problems", "segments", "windows"]
