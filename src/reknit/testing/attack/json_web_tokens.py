"""JSON Web Tokens for those who come. It is imported only where `joserfc` is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from joserfc import jwt
from joserfc.jwk import ECKey

from reknit import environment
from reknit.testing.attack.credentials import ANN, BOB, LATE, ROOT, STRANGER

ISSUER: Final = "https://login.attack.example"
AUDIENCE: Final = "attack"
KEY_ID: Final = "one"


def make_tokens(folder: Path) -> tuple[dict[str, str], str]:
    """A token of each kind, by name, and the line of `security.jwt` for their issuer."""
    trusted, forged = (ECKey.generate_key("P-256", {"kid": KEY_ID}) for _ in range(2))
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [trusted.as_dict(private=False)]}))
    now_s = environment.time_us() // 1_000_000

    def token(name: str, key: ECKey = trusted, lasts_s: int = 3_600) -> str:
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": name, "exp": now_s + lasts_s}
        return jwt.encode({"alg": "ES256", "kid": KEY_ID}, claims, key, algorithms=["ES256"])

    tokens = {name: token(name) for name in (ANN, BOB, ROOT)}
    tokens |= {LATE: token(ANN, lasts_s=-60), STRANGER: token(ANN, forged)}
    return tokens, f"{ISSUER} {AUDIENCE} {keys}"
