"""A Zenoh publisher, with its cache: what a node missed while it was away, it fetches from here.

zenoh publish ENDPOINT NAME KEY RATE RECORD

It stays after its last sample, until it is stopped, because its cache lives in this process.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path

import zenoh

from reknit.testing.chaos.record import DONE, RecordFile, payload

SAMPLES_MAX = 1_000_000


def publish(endpoint: str, name: str, key: str, rate: float, record: RecordFile) -> None:
    """Put samples until publishers are to finish."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
    with zenoh.open(_config(endpoint)) as session:
        publisher = zenoh.ext.declare_advanced_publisher(
            session,
            key,
            congestion_control=zenoh.CongestionControl.BLOCK,
            cache=zenoh.ext.CacheConfig(SAMPLES_MAX),
            publisher_detection=True,
            sample_miss_detection=zenoh.ext.MissDetectionConfig(),  # type: ignore[call-arg]  # both are optional
        )
        number = 0
        while not stopped.wait(1 / rate) and not record.is_stopping:
            number += 1
            publisher.put(payload(name, number))
            record.write("stored", number)
        record.write(DONE)
        while not stopped.wait(1):
            pass


def _config(endpoint: str) -> zenoh.Config:
    """Connect to this endpoint, again and again, and look for no other."""
    config = zenoh.Config()
    settings = {
        "mode": "peer",
        "listen/endpoints": [],
        "connect/endpoints": [endpoint],
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "timestamping/enabled": True,
    }
    for name, value in settings.items():
        config.insert_json5(name, json.dumps(value))
    return config


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["publish", endpoint, name, key, rate, file]:
            publish(endpoint, name, key, float(rate), RecordFile(Path(file)))
        case _:
            sys.exit(__doc__)
