"""Which identity a certificate or a Unix user stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.credentials import NO_CREDENTIALS, Credentials, of_certificate, of_user
from reknit.errors import InvalidConfig
from reknit.trust.identities import NOBODY, Unauthenticated
from reknit.trust.mapping import IdentityMapping

LINES = (
    "uri:spiffe://plant/pumps/* pump",
    "uri:spiffe://plant/gate gate",
    "dns:Gateway.plant.example gateway",
    "subject:C=DE,O=My Plant,CN=ann ann",
    "unix:0 root",
)
CERTIFICATE = {
    "subject": ((("countryName", "DE"),), (("organizationName", "My Plant"),), (("commonName", "ann"),)),
    "subjectAltName": (
        ("DNS", "GATEWAY.plant.example"),
        ("URI", "spiffe://plant/pumps/7"),
        ("IP Address", "1.2.3.4"),
    ),
    "notAfter": "Jan 15 08:00:00 2027 GMT",
}


def test_a_certificate_has_names_of_every_kind_and_an_end() -> None:
    assert of_certificate(CERTIFICATE) == Credentials(
        (
            "uri:spiffe://plant/pumps/7",
            "dns:gateway.plant.example",
            "subject:C=DE,O=My Plant,CN=ann",
            "cn:ann",
        ),
        1_800_000_000_000_000,
    )
    assert of_certificate(None) is of_certificate({}) is NO_CREDENTIALS


@pytest.mark.parametrize(
    ("names", "identity"),
    [
        (("uri:spiffe://plant/pumps/7", "cn:x"), "pump"),
        (("uri:spiffe://plant/gate", "cn:x"), "gate"),
        (("uri:spiffe://plant/gate/more", "cn:x"), "anonymous"),
        (("uri:spiffe://plant/pump", "cn:pump"), "anonymous"),
        (("dns:gateway.plant.example", "subject:C=DE,O=My Plant,CN=ann", "cn:ann"), "gateway"),
        (("subject:C=DE,O=My Plant,CN=ann", "cn:ann"), "ann"),
        (("subject:CN=ann,O=My Plant,C=DE", "cn:ann"), "anonymous"),
        (("unix:0", "unix:root"), "root"),
        (("unix:1", "unix:daemon"), "anonymous"),
        ((), "anonymous"),
    ],
)
def test_the_first_line_that_matches_counts(names: tuple[str, ...], identity: str) -> None:
    assert IdentityMapping(LINES).identify(Credentials(names)).name == identity
    required = IdentityMapping(LINES, is_required=True)
    if identity == "anonymous" and names:
        with pytest.raises(Unauthenticated, match=r"no line of security\.identities"):
            required.identify(Credentials(names))
    else:
        assert required.identify(Credentials(names)).name == identity


def test_without_a_line_about_certificates_the_common_name_is_the_identity() -> None:
    for lines in ((), ("unix:0 root",)):
        assert IdentityMapping(lines).identify(of_certificate(CERTIFICATE))[:3] == (
            "ann",
            "certificate",
            "ann",
        )
    assert IdentityMapping(()).identify(of_user(0)) is NOBODY


@pytest.mark.parametrize("name", ["*", "anonymous", "", "two words", "a\nb", "#a"])
def test_a_common_name_that_no_rule_can_mean_is_no_identity(name: str) -> None:
    certified = Credentials((f"cn:{name}",))
    assert IdentityMapping(()).identify(certified) is NOBODY
    with pytest.raises(Unauthenticated):
        IdentityMapping((), is_required=True).identify(certified)


def test_an_identity_no_longer_holds_when_its_line_is_gone_or_names_another() -> None:
    pump = IdentityMapping(LINES).identify(of_certificate(CERTIFICATE))
    assert pump.expires_us == 1_800_000_000_000_000
    assert IdentityMapping(LINES).objection(pump) == ""
    assert IdentityMapping(LINES[:1]).objection(pump) == ""
    assert "no longer" in IdentityMapping(("uri:spiffe://plant/pumps/7 other",)).objection(pump)
    assert "no longer" in IdentityMapping(LINES[1:2]).objection(pump)
    assert "no line" in IdentityMapping(LINES[1:2], is_required=True).objection(pump)


@pytest.mark.parametrize(
    "line", ["", "ann", "uri:x", "mail:x ann", "uri: ann", "uri:* ann", "unix:0 anonymous", "unix:0 *"]
)
def test_a_line_that_is_not_valid_is_refused(line: str) -> None:
    with pytest.raises(InvalidConfig, match=r"security\.identities"):
        IdentityMapping([line])


@given(st.lists(st.text(), max_size=4))
def test_any_names_are_judged_without_an_error(names: list[str]) -> None:
    mapping = IdentityMapping(LINES)
    found = mapping.identify(Credentials(tuple(names)))
    assert found.name in ("anonymous", "pump", "gate", "gateway", "ann", "root")
