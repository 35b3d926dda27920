"""The store: the journal. Recovery, replay, redelivery and Spark all read from it.

    log/        the log: segment files, frames, how long they are retained
    index/      where the events of each series are, and the ledger as of a position: LMDB
    directory/  a journal's directory: who may write it, opening it, checking and repairing it
    engine/     the parts of a running journal: staging, committing, queries, checkpoints, retention

This package imports only values (`reknit/*.py`). Open `journal.py` first: it has the contract that `DiskJournal`
(`disk.py`) and `MemoryJournal` (`memory.py`) fulfil. `engine/composed.py` lists the parts that both are made of, and
`reader.py` reads a journal from another process.
"""
