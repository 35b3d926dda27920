"""What every test gets: the same Hypothesis examples on every run, and no settings from the shell."""

import os

import pytest
from hypothesis import settings

# Examples are the same on every machine; `HYPOTHESIS_PROFILE=explore` looks for new ones.
settings.register_profile("replay", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "replay"))


@pytest.fixture(autouse=True)
def no_settings_from_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the `REKNIT_*` variables of whoever runs the tests."""
    for name in os.environ:
        if name.startswith("REKNIT_"):
            monkeypatch.delenv(name)
