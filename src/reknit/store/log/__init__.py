"""The log: plain files to which frames are appended. It is the truth; everything else can be derived from it.

`segment_files.py` writes and reads files, `frames.py` checks and separates what is read, `walk.py` walks a log that may
be damaged. `tail.py` has the newest part in memory, and `retention.py` says what a segment is and when it may go.

May import values. Open `segment_files.py` first.
"""
