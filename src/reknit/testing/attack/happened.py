"""What an attempt raises when it came about."""

from __future__ import annotations


class Happened(Exception):
    """What was tried came about, as the answer shows."""
