"""`Config`: all sections together, and the checks that involve several settings."""

# The sections are frozen, so one instance may be the default of many configurations:
# ruff: noqa: RUF009
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

from reknit.config.amqp import AmqpSettings
from reknit.config.anycast import AnycastSettings
from reknit.config.dispatch import DispatchSettings
from reknit.config.http import HttpSettings
from reknit.config.journal import JournalSettings
from reknit.config.limits import LimitSettings
from reknit.config.links import LinkSettings
from reknit.config.multicast import MulticastSettings
from reknit.config.node import NodeSettings
from reknit.config.recovery import RecoverySettings
from reknit.config.retention import RetentionSettings
from reknit.config.rpc import RpcSettings
from reknit.config.security import SecuritySettings
from reknit.config.settings import Section, Setting, settings_of
from reknit.config.toml import toml_table, toml_value
from reknit.config.topics import TopicSettings
from reknit.config.transport import TransportSettings
from reknit.config.units import KIB
from reknit.errors import InvalidConfig

__all__ = ["AT_MOST", "KNOWN", "NO_RULE", "SECTIONS", "Config"]

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
    ("limits.frame_bytes_max", "limits.peer_bytes_max", 0),
    ("limits.peer_bytes_max", "limits.peers_bytes_max", 0),
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
"""Each row: the first setting is at most the second minus a margin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings, frozen and checked. `Config()` has the defaults; `load` reads file and environment.

    It has more than 15 fields because each is a section of the configuration.

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
                less = f" - {margin}" if margin else ""
                self._refuse([lower, upper], f"needs {lower} to be at most {upper}{less}")
        self._check_order()
        self._check_tls()
        if self.links.edge and len(self.links.to) > 1:
            self._refuse(["links.to", "links.edge"], "needs at most one link on an edge node")
        age_s_max = self.retention.age_s_max
        if self.http.listen and 0 < age_s_max < self.http.grace_s:
            self._refuse(
                ["retention.age_s_max", "http.grace_s"], "needs events to be retained for the grace period"
            )

    def _check_order(self) -> None:
        for at, rule in enumerate(self.topics):
            if rule.order != "none" and not (rule.ttl_ms or rule.attempts_max or self.dispatch.attempts_max):
                why = (
                    f"is {rule.order!r} and needs ttl_ms or attempts_max; "
                    "without either, one event could block the others for ever"
                )
                raise InvalidConfig(f"topics[{at}].order", dict(self.origins).get("topics", "code"), why)

    def _check_tls(self) -> None:
        for name in ("transport.tls", "transport.tls_client", "http.tls", "amqp.tls"):
            files = [f"{name}_cert_file", f"{name}_key_file"]
            if bool(self.get(files[0])) != bool(self.get(files[1])):
                self._refuse(files, "needs both files or neither")
        for name in ("transport", "http", "amqp"):
            needs, ca = f"{name}.tls_needs_client_cert", f"{name}.tls_ca_file"
            if self.get(needs) and not self.get(ca):
                self._refuse([needs], f"needs {ca}: the authorities that sign clients' certificates")
        if not self.transport.tls_cert_file and any(url.startswith("tls:") for url in self.node.listen):
            self._refuse(["node.listen"], "needs transport.tls_cert_file for tls://")

    def _refuse(self, names: list[str], why: str) -> NoReturn:
        """Blame the first setting that was set explicitly."""
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
        """Where a setting's value comes from: 'default', 'code', a file, a variable or 'flag'.

        >>> Config(journal=JournalSettings(sync=False)).origin("journal.sync")
        'code'
        """
        return dict(self.origins).get(name, "default" if self.get(name) == KNOWN[name].default else "code")

    def topic(self, topic: str) -> TopicSettings:
        """The rule for a topic: the first one that matches, or the defaults.

        >>> Config(topics=(TopicSettings(pattern="a/*", durability="memory"),)).topic("a/b").durability
        'memory'
        """
        return next((rule for rule in self.topics if rule.pattern.matches(topic)), NO_RULE)

    def to_toml(self) -> str:
        """A file with every setting and its description, which `load` reads back.

        >>> Config().to_toml().splitlines()[0]
        '[node]'
        """
        tables = [(f"[{kind.title}]", getattr(self, kind.title)) for kind in SECTIONS]
        tables += [("[[topics]]", rule) for rule in self.topics]
        return "\n".join(f"{header}\n{toml_table(section)}" for header, section in tables)


NO_RULE = TopicSettings()
