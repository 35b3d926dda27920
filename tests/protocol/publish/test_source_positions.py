"""How far each source has got."""

from reknit.protocol.publish.source_positions import SourcePositions

SOURCE = b"s" * 16


def test_new_source_begins_with_what_was_turned_away() -> None:
    positions = SourcePositions({})
    assert positions.begin_of(SOURCE, 7) == 7
    positions.turned_away(SOURCE, 3)
    positions.turned_away(SOURCE, 5)
    assert positions.begin_of(SOURCE, 7) == 3
    positions.started(SOURCE)
    positions.advance(SOURCE, 9)
    assert positions.begin_of(SOURCE, 7) == 9


def test_skipping_never_goes_back() -> None:
    positions = SourcePositions({SOURCE: 4})
    positions.skip_to(SOURCE, 3)
    assert positions.expected(SOURCE) == 5
    positions.skip_to(SOURCE, 8)
    assert positions.expected(SOURCE) == 8


def test_refused_events_become_dead_letters_once() -> None:
    positions = SourcePositions({})
    assert positions.refuse(SOURCE, 5) == 0
    assert positions.refuse(SOURCE, 4) == 5
    assert positions.refuse(SOURCE, 9) == 5


def test_durable_seq_never_goes_back() -> None:
    positions = SourcePositions({SOURCE: 4})
    assert positions.made_durable(SOURCE, 9) == 8
    assert positions.made_durable(SOURCE, 6) == 8


def test_only_new_sources_are_over_the_limit() -> None:
    positions = SourcePositions({SOURCE: 4}, sources_max=1)
    assert not positions.is_over_limit(SOURCE)
    assert positions.is_over_limit(b"t" * 16)
