"""The store: the journal that everything which reads the past reads.

`MemoryJournal` and `DiskJournal` keep the same contract; `open_reader` reads another process's journal.
"""
