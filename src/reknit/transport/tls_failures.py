"""Why a TLS handshake failed, in words that say what to do: as the side that connects sees it, and as the node does."""

from __future__ import annotations

import ssl
from typing import Final

UNTRUSTED: Final = frozenset({2, 18, 19, 20, 21, 24, 27, 79})
"""OpenSSL's codes for a certificate whose chain does not end at an authority that is trusted."""
NOT_YET_VALID: Final = 9
EXPIRED: Final = 10
OTHER_NAME: Final = frozenset({62, 64})
NOT_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL", "UNEXPECTED_MESSAGE"}
)
VERSIONS: Final = frozenset({"UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "VERSION_TOO_LOW"})

_ALERTS_OF_NODE: Final = {
    "CERTIFICATE_REQUIRED": "it requires a client certificate; set transport.tls_client_cert_file "
    "and transport.tls_client_key_file",
    "UNKNOWN_CA": "it does not trust the authority of this program's certificate; "
    "use one that an authority in its tls_ca_file has signed",
    "CERTIFICATE_EXPIRED": "this program's certificate has expired; renew it",
    "BAD_CERTIFICATE": "it rejects this program's certificate",
    "CERTIFICATE_UNKNOWN": "it rejects this program's certificate",
    "UNSUPPORTED_CERTIFICATE": "this program's certificate is not for clients (extended key usage clientAuth)",
    "HANDSHAKE_FAILURE": "it found no common cipher, or it requires a client certificate "
    "(transport.tls_client_cert_file)",
    "PROTOCOL_VERSION": "it has no version of TLS in common with this program, which needs 1.2 or 1.3",
}
_ALERTS_OF_CLIENT: Final = {
    "UNKNOWN_CA": "it does not trust the authority of this node's certificate",
    "CERTIFICATE_EXPIRED": "this node's certificate has expired; renew it",
    "BAD_CERTIFICATE": "it rejects this node's certificate: perhaps that has no name or address "
    "under which it connects",
    "CERTIFICATE_UNKNOWN": "it rejects this node's certificate",
    "UNSUPPORTED_CERTIFICATE": "this node's certificate is not for servers (extended key usage serverAuth)",
    "PROTOCOL_VERSION": "it has no version of TLS in common with this node, which needs 1.2 or 1.3",
}


def failure_of_node(error: BaseException) -> str:
    """Why this program has no TLS connection to a node.

    >>> failure_of_node(ConnectionResetError())
    'it closed the connection during the TLS handshake'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_of_node(error)
    reason = _reason(error)
    if reason in NOT_TLS:
        return "it does not speak TLS; connect to tcp:// instead"
    return _alert(reason, _ALERTS_OF_NODE) or _broken(error, reason)


def failure_of_client(error: BaseException) -> str:
    """Why a client has no TLS connection to this node.

    >>> failure_of_client(TimeoutError())
    'it did not complete the TLS handshake in time'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_of_client(error)
    reason = _reason(error)
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it shows no certificate, and tls_needs_client_cert requires one"
    if reason in NOT_TLS:
        return "it does not speak TLS"
    return _alert(reason, _ALERTS_OF_CLIENT) or _broken(error, reason)


def is_hang_up(error: BaseException) -> bool:
    """Whether the other side just went away, as probes of a port do."""
    return isinstance(error, ConnectionError | ssl.SSLEOFError)


def _certificate_of_node(error: ssl.SSLCertVerificationError) -> str:
    why = error.verify_message.rstrip(".")
    if error.verify_code in UNTRUSTED:
        return f"its certificate is not from a trusted authority ({why}); name the authority in transport.tls_ca_file"
    if error.verify_code == EXPIRED:
        return "its certificate has expired; renew it on the node"
    if error.verify_code == NOT_YET_VALID:
        return "its certificate is not valid yet; check the clocks of both machines"
    if error.verify_code in OTHER_NAME:
        return f"its certificate is for another name ({why}); connect by a name that the certificate has"
    return f"its certificate is not valid: {why}"


def _certificate_of_client(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in UNTRUSTED:
        return "its certificate is not from an authority in tls_ca_file"
    if error.verify_code == EXPIRED:
        return "its certificate has expired"
    if error.verify_code == NOT_YET_VALID:
        return "its certificate is not valid yet; check the clocks of both machines"
    return f"its certificate is not valid: {error.verify_message}"


def _reason(error: BaseException) -> str:
    return (error.reason or "") if isinstance(error, ssl.SSLError) else ""


def _alert(reason: str, texts: dict[str, str]) -> str:
    """What the other side said before it closed the connection, if it did.

    >>> _alert("TLSV1_ALERT_UNKNOWN_CA", _ALERTS_OF_CLIENT)
    "it does not trust the authority of this node's certificate"
    """
    _, is_alert, name = reason.partition("ALERT_")
    return texts.get(name, f"it says: {_plain(name)}") if is_alert else ""


def _broken(error: BaseException, reason: str) -> str:
    if reason in VERSIONS:
        return "there is no version of TLS in common; reknit needs 1.2 or 1.3"
    if isinstance(error, TimeoutError | ConnectionAbortedError):
        return "it did not complete the TLS handshake in time"
    if is_hang_up(error):
        return "it closed the connection during the TLS handshake"
    return _plain(reason) or str(error)


def _plain(reason: str) -> str:
    return reason.replace("_", " ").lower()
