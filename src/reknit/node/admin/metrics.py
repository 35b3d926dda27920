"""A node's figures for Prometheus, read from its status at every scrape."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast
from wsgiref.simple_server import WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from reknit.credentials import of_certificate
from reknit.errors import InvalidConfig
from reknit.node.admin.figures import NodeFigures
from reknit.node.admin.ledger_reader import LedgerSums
from reknit.transport.tls_server import CurrentTls
from reknit.trust.gate import Gate
from reknit.trust.identities import Unauthenticated

log = logging.getLogger("reknit.node")

ANSWER_S = 30.0
"""How long a scrape waits for a busy node."""
REQUEST_S = 10.0
"""How long a client may be silent before its connection is closed."""
CERTIFICATE = "reknit.certificate"
"""The client's certificate, among the values of a request."""


class Figure(NamedTuple):
    """A metric without labels: its name, its doc and its path in the status."""

    name: str
    doc: str
    path: tuple[str, ...]
    is_counter: bool = False


FIGURES = (
    Figure("reknit_uptime_seconds", "Since the node started.", ("uptime_s",)),
    Figure("reknit_cpu_seconds", "CPU time that the node used.", ("cpu_s",), is_counter=True),
    Figure("reknit_memory_bytes", "Memory that the node uses.", ("rss_bytes",)),
    Figure("reknit_journal_events", "Events that the journal holds.", ("journal", "events")),
    Figure("reknit_journal_bytes", "Bytes that the journal holds.", ("journal", "bytes")),
    Figure("reknit_journal_segments", "Files of the journal's log.", ("journal", "segments")),
    Figure("reknit_intake_full", "1 while the journal can't store more.", ("intake", "is_full")),
    Figure(
        "reknit_journal_broken",
        "1 after a failed sync: nothing is stored until the node is restarted.",
        ("journal", "is_broken"),
    ),
    Figure("reknit_requests_open", "Requests that nobody has answered yet.", ("requests", "open")),
    Figure("reknit_requests_answered", "Requests that the node answered.", ("requests", "answered"), True),
    Figure("reknit_released", "Events that subscribers gave back.", ("repeats", "released"), True),
    Figure("reknit_redelivered", "Events that were delivered again.", ("repeats", "redelivered"), True),
    Figure(
        "reknit_forwarded_again",
        "Anycast events that went along a further path.",
        ("repeats", "forwarded_again"),
        True,
    ),
    Figure("reknit_bridge_sources", "Sources that arrived over bridges, and how.", ("bridges", "sources")),
    Figure(
        "reknit_bridge_forgotten", "Sources that could not be remembered.", ("bridges", "forgotten"), True
    ),
    Figure(
        "reknit_duplicates",
        "Events dropped because they were stored already.",
        ("intake", "duplicates"),
        True,
    ),
)


class NodeCollector(Collector):
    """Turns a node's figures into metrics. Prometheus scrapes in a thread; the node answers on its event loop."""

    def __init__(self, figures: NodeFigures, loop: asyncio.AbstractEventLoop) -> None:
        self._figures = figures
        self._loop = loop

    def collect(self) -> Iterator[Metric]:
        """Every metric, as of now."""
        answer = asyncio.run_coroutine_threadsafe(self._figures.for_metrics(), self._loop)
        yield from metrics_of(*answer.result(ANSWER_S))


def metrics_of(status: dict[str, Any], ledger: LedgerSums) -> Iterator[Metric]:
    """Every metric of a node with this status and ledger."""
    yield from _plain(status)
    yield from _refused(status["refused"])
    yield from _quotas(status["quotas"])
    yield from _authentication(status["authentication"])
    yield from _http(status["http"])
    yield from _amqp(status["amqp"])
    yield from _topics(status["topics"])
    yield from _subscribers(status["subscribers"])
    yield from _ledger(ledger)
    yield from _pipelines(status["pipelines"])


def metrics_text(status: dict[str, Any], ledger: LedgerSums) -> str:
    """The metrics in the form that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(metrics_of(status, ledger)))
    return generate_latest(registry).decode()


class _Once(Collector):
    """Metrics that are there already."""

    def __init__(self, metrics: Iterator[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from self._metrics

    def describe(self) -> Iterator[Metric]:
        """Nothing beforehand."""
        yield from ()


def _plain(status: dict[str, Any]) -> Iterator[Metric]:
    for name, doc, path, is_counter in FIGURES:
        value: Any = status
        for key in path:
            value = value[key]
        family = CounterMetricFamily if is_counter else GaugeMetricFamily
        yield family(name, doc, value=float(value))
    yield GaugeMetricFamily("reknit_connections", "Connections that are open.", value=len(status["peers"]))
    doc, stopped = (
        "Topics and identities that wait for their dead letters.",
        status["dead_letters"]["stopped"],
    )
    yield GaugeMetricFamily("reknit_dead_letters_stopped", doc, value=len(stopped))


def _http(http: dict[str, Any] | None) -> Iterator[Metric]:
    family = GaugeMetricFamily("reknit_http", "Connections and tunnels over HTTP.", labels=["what"])
    for what, value in (http or {}).items():
        if what != "url":
            family.add_metric([what], value)
    yield family


def _amqp(amqp: dict[str, Any] | None) -> Iterator[Metric]:
    now = GaugeMetricFamily(
        "reknit_amqp", "Connections, links, unsettled and credit of AMQP.", labels=["what"]
    )
    total = CounterMetricFamily("reknit_amqp_deliveries", "Messages over AMQP.", labels=["direction"])
    dropped = CounterMetricFamily(
        "reknit_amqp_dropped_settled", "Messages that were sent settled, and that nobody accepted."
    )
    for what, value in (amqp or {}).items():
        if what.startswith("deliveries_"):
            total.add_metric([what.removeprefix("deliveries_")], value)
        elif what == "dropped_settled":
            dropped.add_metric([], value)
        elif what != "url":
            now.add_metric([what], value)
    yield from (now, total, dropped)


def _refused(totals: dict[str, dict[str, int]]) -> Iterator[Metric]:
    family = CounterMetricFamily("reknit_refused", "What was refused.", labels=["identity", "reason"])
    for name, by_reason in totals.items():
        for reason, count in by_reason.items():
            family.add_metric([name, reason], count)
    yield family


def _quotas(rows: dict[str, dict[str, int]]) -> Iterator[Metric]:
    waits = CounterMetricFamily(
        "reknit_quota_waits", "How often publishers waited for a quota.", labels=["identity"]
    )
    held = GaugeMetricFamily(
        "reknit_quota_connections", "Connections of identities with a quota for them.", labels=["identity"]
    )
    for name, row in rows.items():
        waits.add_metric([name], row.get("waits", 0))
        held.add_metric([name], row.get("connections", 0))
    yield from (waits, held)


def _authentication(totals: dict[str, Any]) -> Iterator[Metric]:
    doc = "Attempts to authenticate that failed."
    failed = CounterMetricFamily("reknit_authentication_failed", doc, labels=["door"])
    for door, count in totals["failed"].items():
        failed.add_metric([door], count)
    doc = "Failed attempts whose address had to wait, or that were not answered."
    slowed = CounterMetricFamily("reknit_authentication_slowed", doc, labels=["how"])
    for how in ("slowed", "dropped"):
        slowed.add_metric([how], totals[how])
    yield from (failed, slowed)


def _topics(rows: list[dict[str, Any]]) -> Iterator[Metric]:
    published = CounterMetricFamily("reknit_published", "Events stored, by topic.", labels=["topic"])
    gaps = GaugeMetricFamily("reknit_gaps", "Runs of seqs that are missing, by topic.", labels=["topic"])
    for row in rows:
        published.add_metric([row["topic"]], row["events"])
        gaps.add_metric([row["topic"]], row["gaps"])
    yield from (published, gaps)


def _subscribers(rows: list[dict[str, Any]]) -> Iterator[Metric]:
    labels = ["subscriber"]
    waiting = GaugeMetricFamily("reknit_waiting_bytes", "Not yet delivered, at most.", labels=labels)
    present = GaugeMetricFamily("reknit_subscriber_connected", "1 while it is connected.", labels=labels)
    for row in rows:
        if row["name"]:
            waiting.add_metric([row["name"]], row["waiting_bytes"])
            present.add_metric([row["name"]], row["state"] != "away")
    yield from (waiting, present)


def _ledger(ledger: LedgerSums) -> Iterator[Metric]:
    labels = ["subscriber", "topic", "end"]
    ended = GaugeMetricFamily("reknit_ledger_events", "Published events, by outcome.", labels=labels)
    balanced = GaugeMetricFamily("reknit_ledger_balanced", "1 where the ledger balances.", labels=labels[:2])
    for row in ledger.rows:
        who = [row["subscriber"], row["topic"]]
        for end in ("published", "accepted", "dead_lettered", "lost", "in_flight"):
            ended.add_metric([*who, end], row[end])
        balanced.add_metric(who, row["balanced"])
    doc = "Since the ledger was added up; -1 if it was not yet."
    yield from (ended, balanced, GaugeMetricFamily("reknit_ledger_age_seconds", doc, value=ledger.age_s))


PIPELINE_GAUGES = (
    ("lag_bytes", "lag_bytes", "How much a pipeline is behind the journals that it reads."),
    ("age_s", "silent_seconds", "Since a pipeline last reported its progress."),
    ("held", "held_events", "Events behind a gap that may still be filled."),
    ("gaps", "gaps", "Gaps that may still be filled."),
)
PIPELINE_EVENTS = ("settled", "late", "lost", "dead_letters")
PIPELINE_ENDS = ("done", "stopped", "failed")


def _pipelines(rows: list[dict[str, Any]]) -> Iterator[Metric]:
    """The reports of pipelines. They are told apart by their ids: lakes on two machines may have the same name."""
    labels = ["pipeline", "lake"]
    for key, name, doc in PIPELINE_GAUGES:
        gauge = GaugeMetricFamily(f"reknit_pipeline_{name}", doc, labels=labels)
        for row in rows:
            gauge.add_metric([row["id"], row["lake"]], row[key])
        yield gauge
    running = GaugeMetricFamily(
        "reknit_pipeline_running", "0 where it reported that it ended.", labels=labels
    )
    doc = "Events that a pipeline processed since it was started, by result."
    events = CounterMetricFamily("reknit_pipeline_events", doc, labels=[*labels, "what"])
    for row in rows:
        who = [row["id"], row["lake"]]
        running.add_metric(who, row["stage"] not in PIPELINE_ENDS)
        for what in PIPELINE_EVENTS:
            events.add_metric([*who, what], row[what])
    yield from (running, events)


def serve_metrics(
    figures: NodeFigures, address: str, gate: Gate, tls: CurrentTls | None = None
) -> WSGIServer:
    """Answer Prometheus at HOST:PORT, if it may observe the node. Raises `InvalidConfig`."""
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit()):
        raise InvalidConfig("--metrics", "flag", f"{address!r} is not a valid address; write HOST:PORT")
    registry = CollectorRegistry(auto_describe=False)
    # Registering would scrape at once, on the same event loop that has to answer. So nothing is described beforehand.
    collector = NodeCollector(figures, asyncio.get_running_loop())
    registry.register(collector)
    try:
        # It serves at once, so it begins with nothing to show: the gate comes first.
        server, _ = start_http_server(int(port), host.strip("[]") or "127.0.0.1", CollectorRegistry())
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidConfig("--metrics", "flag", f"{address} can't be listened on: {why}") from None
    _contain(server)
    if tls is not None:
        _encrypt(server, tls)
    server.set_app(_guarded(make_wsgi_app(registry), gate, asyncio.get_running_loop()))
    return server


def _contain(server: WSGIServer) -> None:
    """A client that sends nonsense or nothing costs a line in the log, and a thread for a while only."""

    def failed(request: object, address: object) -> None:
        log.info("metrics: a request from %s failed: %s", address, sys.exc_info()[1])

    served = cast(Any, server)
    served.handle_error = failed
    served.RequestHandlerClass = type("MetricsHandler", (served.RequestHandlerClass,), {"timeout": REQUEST_S})


def _encrypt(server: WSGIServer, tls: CurrentTls) -> None:
    """Speak TLS, by the context of the moment. A handshake runs in its request's thread, and holds up no other."""

    def accept() -> tuple[socket.socket, Any]:
        accepted, address = server.socket.accept()
        return tls.context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False), address

    served = cast(Any, server)
    served.get_request = accept

    class Handler(served.RequestHandlerClass):  # type: ignore[misc, name-defined]
        """Passes the client's certificate on."""

        def get_environ(self) -> dict[str, Any]:
            return {**super().get_environ(), CERTIFICATE: self.connection.getpeercert()}

    served.RequestHandlerClass = Handler


def readable_accept(accept: str) -> str:
    """What a scraper accepts, if the library can read it; it takes any version for a number.

    >>> readable_accept("text/plain"), readable_accept("application/openmetrics-text; version=x")
    ('text/plain', '')
    """
    try:
        choose_encoder(accept)
    except (TypeError, ValueError):
        return ""
    return accept


def _slow_down(gate: Gate, address: str) -> None:
    """A token was wrong: wait, in the thread of its request."""
    if wait_s := gate.attempts.failed(address, "metrics"):
        threading.Event().wait(wait_s)
        gate.attempts.answered(address)


def _guarded(app: WSGIApplication, gate: Gate, loop: asyncio.AbstractEventLoop) -> WSGIApplication:
    """The same, for those who may observe the node. A token comes in the header `Authorization: Bearer TOKEN`.

    Requests have threads of their own; the audit belongs to the node's.
    """

    def answer(request: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        scheme, _, token = request.get("HTTP_AUTHORIZATION", "").partition(" ")
        name, certified = None, of_certificate(request.get(CERTIFICATE))
        address = request.get("REMOTE_ADDR", "")
        try:
            identity = gate.identify(token.strip() if scheme.lower() == "bearer" else "", certified)
            name = identity.name
            if identity.means:
                loop.call_soon_threadsafe(gate.audit.login, identity, "metrics", address)
        except Unauthenticated as error:
            loop.call_soon_threadsafe(gate.audit.login, None, "metrics", address, error.why)
            _slow_down(gate, address)
        if name is not None and gate.may_observe(name):
            request["HTTP_ACCEPT"] = readable_accept(request.get("HTTP_ACCEPT", ""))
            return app(request, start)
        status = "401 Unauthorized" if name is None or not token else "403 Forbidden"
        text = "metrics need a token that may subscribe to ** (Authorization: Bearer TOKEN; see security.allow)\n"
        start(status, [("Content-Type", "text/plain; charset=utf-8"), ("WWW-Authenticate", "Bearer")])
        return [text.encode()]

    return answer
