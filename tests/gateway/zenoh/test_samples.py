"""Zenoh's samples as our events: sources, seqs, batches."""

from __future__ import annotations

from reknit.gateway.zenoh.samples import (
    WRAP,
    Origin,
    SampleNumbering,
    ZenohSample,
    is_from_zenoh,
    sn_of,
    source_of,
)

ANN, BOB = Origin("c0ffee", 1), Origin("c0ffee", 2)


def taken(sn: int, origin: Origin | None = ANN, key: str = "plant/a", time_us: int = 1) -> ZenohSample:
    return ZenohSample(key, b"%d" % sn, time_us, origin, sn)


def test_numbers_go_on_where_zenohs_wrap() -> None:
    numbering = SampleNumbering("edge")
    batches = numbering.batches([taken(WRAP - 2), taken(WRAP - 1), taken(0), taken(1)])
    assert [(batch.first, batch.stop) for batch in batches] == [(WRAP - 1, WRAP + 3)]
    [again] = numbering.batches([taken(WRAP - 1)])
    assert again.first == WRAP, "an old one that comes late is still the old one"


def test_numbers_and_seqs_are_each_others_inverse() -> None:
    assert [sn_of(seq) for seq in (1, 2, WRAP, WRAP + 1)] == [0, 1, WRAP - 1, 0]


def test_each_publisher_and_key_is_a_source_of_its_own() -> None:
    numbering = SampleNumbering("edge")
    batches = numbering.batches([taken(0), taken(0, BOB), taken(1), taken(0, ANN, "plant/b")])
    assert [(batch.topic, batch.first, batch.count) for batch in batches] == [
        ("plant/a", 1, 1),
        ("plant/a", 1, 1),
        ("plant/a", 2, 1),
        ("plant/b", 1, 1),
    ]
    assert len({batch.source for batch in batches}) == 3
    assert all(is_from_zenoh(batch.source) for batch in batches)


def test_samples_without_source_information_are_numbered_per_key() -> None:
    numbering = SampleNumbering("edge")
    samples = [taken(0, None), taken(0, None), taken(0, None, "plant/b")]
    assert numbering.unknown_keys(samples) == {"plant/a", "plant/b"}
    numbering.resume("plant/a", 6)
    numbering.resume("plant/b", 0)
    assert [(batch.first, batch.stop) for batch in numbering.batches(samples)] == [(7, 9), (1, 2)]


def test_what_differs_from_sample_to_sample_is_kept() -> None:
    numbering = SampleNumbering("edge")
    gone = ZenohSample("plant/a", b"", 5, ANN, 1, {"zenoh-kind": "delete"})
    [batch] = numbering.batches([taken(0), gone])
    assert [event.headers for event in batch.events()] == [{}, {"zenoh-kind": "delete"}]
    assert [event.time_us for event in batch.events()] == [1, 5]


def test_a_key_without_source_information_has_one_source_per_node() -> None:
    assert source_of("plant/a", None, "edge") == source_of("plant/a", None, "edge")
    assert source_of("plant/a", None, "edge") != source_of("plant/a", None, "core")
