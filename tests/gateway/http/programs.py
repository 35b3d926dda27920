"""Programs of others that tests drive. Where one is missing, its tests are skipped; under CI=true they fail."""

from __future__ import annotations

import os
import shutil

import pytest

os.environ["PATH"] += ":/usr/sbin:/sbin"  # nginx and nft are there on Debian
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""


def needs(program: str, package: str = "") -> pytest.MarkDecorator:
    """Skip where a program is missing."""
    reason = f"{program} is missing: apt-get install {package or program}"
    return pytest.mark.skipif(not shutil.which(program), reason=reason)
