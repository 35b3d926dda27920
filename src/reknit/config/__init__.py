"""Every setting and every limit.

A setting comes from its default, then the file (`$REKNIT_CONFIG`, or `./reknit.toml`), then the environment
(`REKNIT_LIMITS__FRAME_BYTES_MAX` is `limits.frame_bytes_max`), then flags; the last one wins. To add a setting, add a
line to the module of its section: name with the unit last, type, default, description.

This package imports only the values in `reknit/*.py`. Open `config.py` first: it lists the sections. `settings.py` says
how one value is read, `loader.py` where values come from.
"""

from __future__ import annotations

from reknit.config.amqp import AmqpSettings
from reknit.config.anycast import AnycastSettings
from reknit.config.config import KNOWN, SECTIONS, Config
from reknit.config.description import SettingRow, describe
from reknit.config.dispatch import DispatchSettings
from reknit.config.http import HttpSettings
from reknit.config.journal import JournalSettings
from reknit.config.limits import LimitSettings
from reknit.config.links import LINK_COST_MAX, LinkSettings
from reknit.config.loader import load
from reknit.config.multicast import MulticastSettings
from reknit.config.node import NodeSettings
from reknit.config.recovery import RecoverySettings
from reknit.config.retention import RetentionSettings
from reknit.config.rpc import RpcSettings
from reknit.config.security import SecuritySettings
from reknit.config.topics import TopicSettings
from reknit.config.transport import TransportSettings

__all__ = [
    "KNOWN",
    "LINK_COST_MAX",
    "SECTIONS",
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
    "RpcSettings",
    "SecuritySettings",
    "SettingRow",
    "TopicSettings",
    "TransportSettings",
    "describe",
    "load",
]
