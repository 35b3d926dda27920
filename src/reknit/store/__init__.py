"""The store: the journal. Recovery, replay, redelivery and Spark all read from it.

This package imports only values (`reknit/*.py`). Open `journal.py` first: it has the contract that `DiskJournal`
(`disk.py`) and `MemoryJournal` (`memory.py`) fulfil. `composed.py` lists the parts that both are made of, `index.py`
describes the index on disk, and `reader.py` reads a journal from another process.
"""
