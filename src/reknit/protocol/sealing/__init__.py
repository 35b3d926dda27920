"""Sealing: a group's datagrams are encrypted and authenticated with a shared key.

Open `seal.py` first: it seals what a member sends, and decides about everything that arrives. `shared_keys.py` has the
keys that a group's members share, `ciphers.py` derives a sender's keys from them, and `replay_window.py` remembers which
datagrams of a sender came. Nothing here does I/O. Only `ciphers.py` and `seal.py` need the package `cryptography`.
"""
