"""Reconnects: 200 only if nothing was lost, for both schemes."""

from __future__ import annotations

from pathlib import Path

import pytest

from reknit.config import Config, HttpSettings, RetentionSettings
from reknit.errors import InvalidConfig
from reknit.protocol.tunnel.journal_place import JournalPlace
from tests.gateway.http.http_client import Web, config, payloads, web

BIG = "x" * 3_000


def test_the_status_advertises_the_scheme_and_the_grace_period(node: Web) -> None:
    with node.tunnel() as tunnel:
        status = tunnel.events(1)[0]
        assert status["kn_journal_reconnect_scheme"] == b"kn_event_hash"
        assert status["kn_journal_reconnect_timeout"] == b"60"
    with web(config(scheme="kn_route_checkpoint")) as other, other.tunnel() as tunnel:
        assert tunnel.events(1)[0]["kn_journal_reconnect_scheme"] == b"kn_route_checkpoint"


def test_do_max_age_replays_the_same_events_with_the_same_hashes(tmp_path: Path) -> None:
    with web(config(tmp_path)) as node, node.tunnel() as tunnel:
        tunnel.events(1)
        for number in range(3):
            node.post("/what/chat", str(number))
        before = tunnel.events(4)[1:]
    with web(config(tmp_path)) as node, node.tunnel(do_max_age="60") as tunnel:
        after = tunnel.events(4)[1:]
    assert [one["kn_event_hash"] for one in before] == [one["kn_event_hash"] for one in after]


def test_do_since_checkpoint_goes_on_behind_every_event_also_within_a_batch(node: Web) -> None:
    from reknit.client.blocking.session import connect_sync

    with node.tunnel() as tunnel, connect_sync(node.node.urls[0]) as session:
        tunnel.events(1)
        session.publish_many("what/chat", [b"%d" % number for number in range(10)])
        events = tunnel.events(11)
    for index, event in enumerate(events):
        checkpoint = event["kn_route_checkpoint"].decode()
        with node.tunnel(do_since_checkpoint=checkpoint) as again:
            rest = again.events(11 - index)
            assert payloads(rest)[1:] == [str(number) for number in range(index, 10)]


def test_recovery_before_the_first_event_was_seen(node: Web) -> None:
    with node.tunnel() as tunnel:
        checkpoint = tunnel.events(1)[0]["kn_route_checkpoint"].decode()
    node.post("/what/chat", "missed")
    with node.tunnel(do_since_checkpoint=checkpoint) as tunnel:
        assert payloads(tunnel.events(2)) == ["", "missed"]


@pytest.mark.parametrize(
    ("checkpoint", "code"),
    [
        ("0123456789abcdef-0-0", 404),
        ("nonsense", 400),
        ("{epoch}-8-0", 404),
        ("{epoch}-999999-0", 404),
        ("{epoch}-0-7", 404),
    ],
)
def test_an_unknown_checkpoint_is_not_200_and_brings_no_events(node: Web, checkpoint: str, code: int) -> None:
    node.post("/what/chat", "x" * 200)
    answer = node.get(kn_from="/what/chat", do_since_checkpoint=checkpoint.format(epoch=node.node.epoch))
    assert answer.code == code
    assert len(answer.events) == 1
    assert answer.status.startswith(str(code))


def test_bytes_that_look_like_a_batch_inside_a_payload_are_no_place_to_go_on_from(tmp_path: Path) -> None:
    from reknit.batch import Batch
    from reknit.client.blocking.session import connect_sync

    forged = bytes(Batch.build(b"f" * 16, "what/chat", 1, [b"forged"], time_us=1).data)
    with web(config(tmp_path)) as node, connect_sync(node.node.urls[0]) as session:
        session.publish("what/chat", forged)
        entry = node.node.journal.read(0).entries[0]
        inside = entry.position + bytes(node.node.journal.fetch(entry)).index(forged)
        place = JournalPlace(node.node.epoch, inside).text
        assert node.get(kn_from="/what/chat", do_since_checkpoint=place).code == 404


def test_a_restart_that_lost_state_is_not_200(tmp_path: Path) -> None:
    with web() as node, node.tunnel() as tunnel:
        checkpoint = tunnel.events(1)[0]["kn_route_checkpoint"].decode()
    with web() as node:
        assert node.get(kn_from="/what/chat", do_since_checkpoint=checkpoint).status == "404 Expired"
        assert node.get(kn_from="/what/chat", do_max_age="60").status == "404 Expired"


def test_truncation_by_size_within_the_grace_period_is_not_200(tmp_path: Path) -> None:
    small = config(tmp_path, RetentionSettings(bytes_max=16 << 10), segment_bytes=4096)
    with web(small) as node, node.tunnel() as tunnel:
        checkpoint = tunnel.events(1)[0]["kn_route_checkpoint"].decode()
        for _ in range(20):
            node.post("/what/chat", BIG)
        while node.node.journal.start == 0:
            node.post("/what/chat", BIG)
        assert node.get(kn_from="/what/chat", do_since_checkpoint=checkpoint).status == "404 Expired"
        assert node.get(kn_from="/what/chat", do_max_age="60").status == "404 Expired"
        # an idle client on a quiet topic lost nothing
        with node.tunnel("/quiet", do_since_checkpoint=checkpoint) as quiet:
            assert quiet.events(1)[0]["status"] == b"200 Watching topic"


def test_the_grace_period_cannot_be_longer_than_events_are_kept() -> None:
    retention = RetentionSettings(age_s_max=30.0)
    with pytest.raises(InvalidConfig, match="grace"):
        Config(retention=retention, http=HttpSettings(listen="127.0.0.1:0", grace_s=60.0))
    Config(retention=retention, http=HttpSettings(listen="127.0.0.1:0", grace_s=30.0))
    Config(retention=retention)


def test_a_bad_age_or_count_is_a_bad_request(node: Web) -> None:
    assert node.get(kn_from="/what/chat", do_max_age="old").code == 400
    assert node.get(kn_from="/what/chat", do_max_n="few").code == 400
    for age in ("-1", "nan", "1_0 s"):
        assert node.get(kn_from="/what/chat", do_max_age=age).code == 400
        assert node.get(kn_from="/what/chat", kn_to="/what/else", do_max_age=age).code == 400
    for count in ("-1", "1.5", "\u0661", "9" * 30):
        assert node.get(kn_from="/what/chat", do_max_n=count).code == 400
        assert node.get(kn_from="/what/chat", kn_to="/what/else", do_max_n=count).code == 400
