"""The sums that every run checks before it commits: what a stage wrote is what it had to write.

captured + recovered - repeated = settled + held + late        settle
settled - skipped               = events                       events
"""

from __future__ import annotations

from reknit.errors import LocalError

__all__ = ["DoesNotAddUp", "check_sum"]


class DoesNotAddUp(LocalError):
    """A stage would commit more or fewer events than it was given: nothing was committed.

    >>> print(DoesNotAddUp("events", "settled", 10, "rows", 9))
    stage events does not add up: 10 settled, but 9 rows; nothing was committed. Please report this, with the log
    """

    def __init__(self, stage: str, given: str, count: int, made: str, made_count: int) -> None:
        super().__init__(stage, given, count, made, made_count)
        self.text = f"stage {stage} does not add up: {count:,} {given}, but {made_count:,} {made}"

    def __str__(self) -> str:
        return f"{self.text}; nothing was committed. Please report this, with the log"


def check_sum(stage: str, given: str, count: int, made: str, made_count: int) -> None:
    """Raise `DoesNotAddUp` unless both counts are the same."""
    if count != made_count:
        raise DoesNotAddUp(stage, given, count, made, made_count)
