"""What a queue keeps in order. Commands offer it too, so this module loads nothing."""

from __future__ import annotations

from typing import Literal

QueueOrder = Literal["", "source", "key"]
"""Empty: what the rules of its topics say."""
