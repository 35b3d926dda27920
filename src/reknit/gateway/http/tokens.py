"""The access rules of the HTTP gateway: tokens from a file, rules from the configuration."""

from __future__ import annotations

from pathlib import Path

from reknit.config import HttpSettings
from reknit.errors import InvalidConfig
from reknit.gateway.access import AccessRules


def access_rules(settings: HttpSettings) -> AccessRules:
    """The rules of `http.allow` with the tokens of `http.tokens_file`. Raises `InvalidConfig`."""
    tokens = read_tokens(settings.tokens_file) if settings.tokens_file else {}
    return AccessRules(settings.allow, tokens)


def read_tokens(path: str) -> dict[str, str]:
    """Tokens by user, from a file with a name and a token on each line. Raises `InvalidConfig`."""
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except OSError as error:
        raise InvalidConfig("http.tokens_file", path, f"can't be read: {error.strerror}") from None
    tokens: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise InvalidConfig("http.tokens_file", f"line {number}", "needs a name and a token")
        tokens[words[0]] = words[1]
    return tokens
