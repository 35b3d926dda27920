"""Seeds that once failed, each with the cause: they stay good. Those of `SEEDS` are large fabrics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.run import run

SEEDS = {
    12: "the rest of an ordered delivery arrived after the program had given back an event before it",
    38: "retention removed dead letters that wait, where it may remove events that subscribers are owed",
    15: "a node refused copies of its own events that came back over bridges, and the bridge held them for ever",
    21: "a redriven event that came back over a ring of bridges was stored twice, as the intake did not know it",
    103: "an ordered key stopped when an event that was given back ended before the rest of its delivery came back",
    58: "a link that came back did not look for events before its neighbour's position, which were now meant for it",
    5055: "the record blamed a frozen worker that found an event in its socket after another one had accepted it",
    10289: "a subscriber was shown queued events whose lease had ended, before the one that it had given back",
    5159: "a crashed host kept the lock of the journal of aligned events, and its node could not start again",
    214: "a durable subscriber that was away when retention removed its events was never told that they are lost",
    10295: "a neighbour's events waited for ever behind one that the node had refused as too far in the future",
    10234: "the same at the target of a bridge, after its clock was set back",
    10335: "the record did not count a node's restart as a new life, in which a repeated post is stored again, if it "
    "was in order, or if the post was on its way when the node started",
    10110: "an AMQP receiver could not tell that a message was redriven",
    10365: "a commit that failed on a full disk was tried again after the node had closed its journal",
    10252: "two nodes with bridges to each other each made the other's bridge wait for its own full queue",
    228: "a node that got events over a bridge before its links brought them claimed to be their origin",
    2015: "the same with a relay, which did not tell where its sources had been",
    10120: "the same with an aligned node",
    5129: "a bridge told a node that its own source had passed others, and the node did not send it there any more",
    10278: "the check of circles did not count redriven events",
    10052: "ordered events that were given back right after a reconnection were retried each on its own",
    10025: "a neighbour whose disk was replaced did not get what it had to pass on, and what came while it was away",
    10251: "one answer covered a part of a journal and earlier ones that were sent after it, and freed no window",
    10386: "a node that was restarted passed over events of a node that it had not heard of yet",
    10286: "a subscriber that wanted the last 5 events of each source began new sources with their last 5, too",
    10325: "events on a shared topic that were gone with a disk stayed in flight, as nobody was told that they are lost",
    10426: "a node asked its neighbour for events before it had told it of its subscriptions, and they were passed over",
    10269: "the check of tunnels did not know that an event may be gone with the disk of its node",
    253: "an outcome settled one of two copies of an event that a worker had, and a subscriber gave back an attempt "
    "that was over, as it had dropped the repeated delivery",
    10055: "a member that was started again took datagrams for the process before it for its own",
    61053: "events that all behind a neighbour had released waited for a change of paths, not for the next attempt",
    61000: "a node stopped to bring events for a subscriber without a name as soon as its connection broke",
    223: "the record took dead letters that were still on their way to the disk for read, and never saw them",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_seed_stays_good(seed: int) -> None:
    assert run(seed, plan=FabricPlan.large(seed)).problems == [], SEEDS[seed]


SMALL_SEEDS = {
    70040: "a node took the loss of a line to the process before a restart for that of the line that had replaced it, "
    "and a sender waited for ever for the events that it had forwarded over that",
    143: "a node sent a worker an event that it had already, after the link over which that had come was back",
    10212: "a member that had joined later than another one brought that one's events to a restarted node first, and "
    "the node took its first ones for repeated",
    80075: "a cache named events that were on their way to its disk, and then said that it had none of them",
    80144: "a node remembered that a peer had been asked for events which another one brought",
    80658: "a loss that a relay was told of was not told at its target, as no later event of that source followed",
    111849: "a bridge that was told of a loss while batches waited took that for the end of its session each time",
    80610: "the operator did not resume topics that a restored copy of a disk had paused",
    106: "nodes that were restarted passed over the events for one that was away for longer than they look back",
    80315: "a durable subscriber dropped events that it had ended, after a node with a new disk had ignored that",
    112123: "a publisher was not started again after a node with a slow clock had refused several of its events at once",
    500028: "a group over TCP that broke in two did not merge, as the coordinators did not know each other's addresses",
    75: "an observer took it for an error that retention removed what it was about to read",
}


@pytest.mark.parametrize("seed", SMALL_SEEDS)
def test_small_seed_stays_good(seed: int) -> None:
    assert run(seed).problems == [], SMALL_SEEDS[seed]


WITHOUT_KEYS = {
    10020: "an event that alignment had published and that was not stored yet went beside the journal in the next round",
    10124: "a member that was started again took acknowledgements for the process before it for those of its own events",
}
"""Seeds from before groups had keys, which seal the address, too."""


@pytest.mark.parametrize("seed", WITHOUT_KEYS)
def test_seed_without_keys_stays_good(seed: int) -> None:
    plan = replace(FabricPlan.large(seed), group_keys=0)
    assert run(seed, plan=plan).problems == [], WITHOUT_KEYS[seed]
