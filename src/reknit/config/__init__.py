"""Every setting and every limit, together.

A setting comes from its default, then the file (`$REKNIT_CONFIG`, or `./reknit.toml`), then the environment
(`REKNIT_LIMITS__FRAME_BYTES_MAX` is `limits.frame_bytes_max`), then flags; the last one wins. To add a
setting, add a line to its section in `config_node.py` or `config_fabric.py`: name with the unit last, type, default,
doc.
"""

# The sections are frozen, and one may be the default of many:
# ruff: noqa: RUF009
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from reknit.config.fabric import (
    LINK_COST_MAX,
    AmqpSettings,
    AnycastSettings,
    HttpSettings,
    LinkSettings,
    MulticastSettings,
    RpcSettings,
)
from reknit.config.node import (
    DispatchSettings,
    JournalSettings,
    LimitSettings,
    NodeSettings,
    RecoverySettings,
    RetentionSettings,
    SecuritySettings,
    TopicSettings,
    TransportSettings,
)
from reknit.config.settings import Section, Setting, gather, lookup, settings_of, toml_table, toml_value
from reknit.errors import InvalidConfig

__all__ = [
    "LINK_COST_MAX",
    "AmqpSettings",
    "AnycastSettings",
    "Config",
    "DispatchSettings",
    "HttpSettings",
    "JournalSettings",
    "LimitSettings",
    "LinkSettings",
    "MulticastSettings",
    "NodeSettings",
    "RecoverySettings",
    "RetentionSettings",
    "Row",
    "RpcSettings",
    "SecuritySettings",
    "TopicSettings",
    "TransportSettings",
    "describe",
    "load",
]

KIB = 1 << 10

SECTIONS: tuple[type[Section], ...] = (
    NodeSettings,
    JournalSettings,
    RetentionSettings,
    LimitSettings,
    TransportSettings,
    RecoverySettings,
    DispatchSettings,
    LinkSettings,
    AnycastSettings,
    HttpSettings,
    AmqpSettings,
    MulticastSettings,
    RpcSettings,
    SecuritySettings,
)
KNOWN: dict[str, Setting] = {f"{kind.title}.{one.key}": one for kind in SECTIONS for one in settings_of(kind)}
AT_MOST = (
    ("limits.payload_bytes_max", "limits.frame_bytes_max", 2 * KIB),  # header and topic have to fit too
    ("limits.batch_bytes", "limits.frame_bytes_max", 0),
    ("amqp.message_bytes_max", "amqp.assembly_bytes_max", 0),
    ("limits.batch_bytes", "limits.publish_window_bytes", 0),
    ("transport.heartbeat_s", "transport.peer_timeout_s", 0),
    ("transport.reconnect_backoff_s_min", "transport.reconnect_backoff_s_max", 0),
    ("dispatch.retry_backoff_s_min", "dispatch.retry_backoff_s_max", 0),
    ("links.beat_s", "links.timeout_s", 0),
    ("group.event_bytes_max", "group.window_bytes", 0),
    ("group.again_s_min", "group.again_s_max", 0),
    ("group.quiet_s", "group.quiet_s_max", 0),
)
"""The first of each row is at most the second less the third."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings, frozen and checked. `Config()` is all defaults; `load` reads file and environment.

    >>> Config(journal=JournalSettings(kind="memory")).journal.kind
    'memory'
    """

    node: NodeSettings = NodeSettings()
    journal: JournalSettings = JournalSettings()
    retention: RetentionSettings = RetentionSettings()
    limits: LimitSettings = LimitSettings()
    transport: TransportSettings = TransportSettings()
    recovery: RecoverySettings = RecoverySettings()
    dispatch: DispatchSettings = DispatchSettings()
    links: LinkSettings = LinkSettings()
    anycast: AnycastSettings = AnycastSettings()
    http: HttpSettings = HttpSettings()
    amqp: AmqpSettings = AmqpSettings()
    group: MulticastSettings = MulticastSettings()
    rpc: RpcSettings = RpcSettings()
    security: SecuritySettings = SecuritySettings()
    topics: tuple[TopicSettings, ...] = ()
    origins: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for lower, upper, margin in AT_MOST:
            if self.get(lower) > self.get(upper) - margin:
                self._refuse([lower, upper], f"needs {lower} to be at most {upper} - {margin}")
        self._check_order()
        tls = self.transport
        for name, files in (("transport", tls), ("amqp", self.amqp)):
            if bool(files.tls_cert_file) != bool(files.tls_key_file):
                self._refuse([f"{name}.tls_cert_file", f"{name}.tls_key_file"], "needs both files or none")
        if not tls.tls_cert_file and any(url.startswith("tls:") for url in self.node.listen):
            self._refuse(["node.listen"], "needs transport.tls_cert_file for tls://")
        if self.links.edge and len(self.links.to) > 1:
            self._refuse(["links.to", "links.edge"], "needs one link at most for an edge")
        age_s_max = self.retention.age_s_max
        if self.http.listen and 0 < age_s_max < self.http.grace_s:
            self._refuse(
                ["retention.age_s_max", "http.grace_s"], "needs events to be kept for the grace period"
            )

    def _check_order(self) -> None:
        for at, rule in enumerate(self.topics):
            if rule.order != "none" and not (rule.ttl_ms or rule.attempts_max or self.dispatch.attempts_max):
                why = "is ordered and needs ttl_ms or attempts_max, so that no event holds up others for ever"
                raise InvalidConfig(f"topics[{at}].order", dict(self.origins).get("topics", "code"), why)

    def _refuse(self, names: list[str], why: str) -> NoReturn:
        """Blame the first that somebody has set."""
        name = next((name for name in names if self.origin(name) != "default"), names[0])
        values = ", ".join(f"{name} = {toml_value(self.get(name))}" for name in names)
        raise InvalidConfig(name, self.origin(name), f"{why}; now {values}")

    def get(self, name: str) -> Any:
        """The value of a setting by its full name.

        >>> Config().get("journal.kind")
        'disk'
        """
        section, _, key = name.partition(".")
        return getattr(getattr(self, section), key)

    def origin(self, name: str) -> str:
        """Where a setting's value came from: 'default', 'code', a file, a variable or 'flag'.

        >>> load(environ={"REKNIT_JOURNAL__SYNC": "false"}).origin("journal.sync")
        'REKNIT_JOURNAL__SYNC'
        """
        return dict(self.origins).get(name, "default" if self.get(name) == KNOWN[name].default else "code")

    def topic(self, topic: str) -> TopicSettings:
        """The rule for a topic: the first that matches, or the defaults.

        >>> Config(topics=(TopicSettings(pattern="a/*", durability="memory"),)).topic("a/b").durability
        'memory'
        """
        return next((rule for rule in self.topics if rule.pattern.matches(topic)), _NO_RULE)

    def to_toml(self) -> str:
        """A file with every setting and its doc, which `load` reads back.

        >>> Config().to_toml().splitlines()[-1]
        'allow = []'
        """
        tables = [(f"[{kind.title}]", getattr(self, kind.title)) for kind in SECTIONS]
        tables += [("[[topics]]", rule) for rule in self.topics]
        return "\n".join(f"{header}\n{toml_table(section)}" for header, section in tables)


_NO_RULE = TopicSettings()


class Row(NamedTuple):
    """A setting, for people: values are written as in the file.

    >>> describe()[0].type
    'text'
    """

    name: str
    value: str
    default: str
    origin: str
    type: str
    unit: str
    doc: str


def describe(config: Config | None = None) -> list[Row]:
    """Every setting with its value, default, origin, type, unit and doc, in the order of the sections.

    >>> [row.doc for row in describe() if row.name == "limits.batch_bytes"]
    ['size at which single publishes are sent as a batch']
    """
    config = config or Config()
    rows = [_row(name, config.get(name), one, config.origin(name)) for name, one in KNOWN.items()]
    rules = {f"topics[{at}]": rule for at, rule in enumerate(config.topics)} or {"topics[]": _NO_RULE}
    origin = dict(config.origins).get("topics", "code" if config.topics else "default")
    for title, rule in rules.items():
        found = [(one, getattr(rule, one.key)) for one in settings_of(TopicSettings)]
        rows += [_row(f"{title}.{one.key}", value, one, origin) for one, value in found]
    return rows


def load(
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Config:
    """Read the file, the environment (the process's unless given) and overrides by full name (None: not set).

    >>> load(environ={}, overrides={"limits.batch_bytes": "64 KiB", "node.name": None}).limits.batch_bytes
    65536
    >>> load(environ={}, overrides={"journal.kin": 1})
    Traceback (most recent call last):
    reknit.errors.InvalidConfig: setting journal.kin (from flag) is unknown; did you mean journal.kind?
    """
    given = gather(path, os.environ if environ is None else environ, overrides or {})
    values: dict[str, dict[str, Any]] = {kind.title: {} for kind in SECTIONS}
    topics: tuple[TopicSettings, ...] = ()
    for name, raw, origin in given:
        if name == "topics":
            topics = tuple(_rules(raw, origin))
        else:
            section, _, key = name.partition(".")
            values[section][key] = lookup(name, KNOWN, name, origin).read(raw, name, origin)
    sections: dict[str, Any] = {kind.title: kind(**values[kind.title]) for kind in SECTIONS}
    return Config(**sections, topics=topics, origins=tuple((name, origin) for name, _, origin in given))


def _rules(raw: object, origin: str) -> Iterator[TopicSettings]:
    if not isinstance(raw, list | tuple) or not all(isinstance(table, dict) for table in raw):
        raise InvalidConfig("topics", origin, "must be [[topics]] tables with a pattern each")
    known = {one.key: one for one in settings_of(TopicSettings)}
    for at, table in enumerate(raw):
        read: dict[str, Any] = {}
        for key, value in table.items():
            name = f"topics[{at}].{key}"
            read[key] = lookup(key, known, name, origin).read(value, name, origin)
        yield TopicSettings(**read)


def _row(name: str, value: object, one: Setting, origin: str) -> Row:
    return Row(name, toml_value(value), toml_value(one.default), origin, one.type_text, one.unit, one.doc)
