"""The token by which this node or program proves who it is to other nodes."""

from __future__ import annotations

from reknit.config import SecuritySettings
from reknit.config.credentials import read_private
from reknit.errors import InvalidConfig


def own_token(settings: SecuritySettings) -> str:
    """The token that this node or program presents: from the settings, or from the file that they name."""
    if settings.token or not settings.token_file:
        return settings.token
    words = read_private(settings.token_file, "security.token_file").split()
    if len(words) != 1:
        raise InvalidConfig("security.token_file", settings.token_file, "needs a token, and nothing else")
    return words[0]
