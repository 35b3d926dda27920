"""The version of this package. Everything else that needs it reads it here."""

from __future__ import annotations

__version__ = "0.1.0"
