"""What people look for one thing with: an event and its way, the seqs of a source, who is connected, what was logged.

Each answer is bounded, and says where to continue. `event_search.py` finds events, `event_story.py` tells what became of
one; `figure_history.py` keeps the last minutes of the ledger in memory for sparklines.
"""
