from __future__ import annotations

import msgspec
import pytest

from reknit.outcome import CODE_OF, Code, FinalOutcome, Outcome, Reason


def test_codes_are_those_of_google_rpc() -> None:
    assert [code.value for code in Code] == list(range(17))
    assert (Code.OK, Code.PERMISSION_DENIED, Code.UNAUTHENTICATED) == (0, 7, 16)


def test_every_reason_has_a_code_and_none_is_ok() -> None:
    assert set(CODE_OF) == set(Reason)
    assert Code.OK not in CODE_OF.values()
    assert all(reason.code is CODE_OF[reason] for reason in Reason)


@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_that_ends_the_event_uses_up_no_further_attempt(outcome: Outcome) -> None:
    assert not (outcome.is_final and outcome.counts)


def test_released_and_received_cost_no_attempt() -> None:
    assert not Outcome.RELEASED.counts
    assert not Outcome.RECEIVED.counts


@pytest.mark.parametrize("kind", [Code, Outcome, FinalOutcome, Reason])
def test_all_go_through_msgpack_as_plain_values(kind: type[Code | Outcome | FinalOutcome | Reason]) -> None:
    for member in kind:
        packed = msgspec.msgpack.encode(member)
        assert msgspec.msgpack.decode(packed) == member.value
        assert msgspec.msgpack.decode(packed, type=kind) is member
