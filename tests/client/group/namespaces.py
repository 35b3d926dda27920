"""Network namespaces on one bridge, with packets dropped at random: a small LAN that loses datagrams."""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType

NEEDED = ("ip", "nft")


def why_not() -> str:
    """Why namespaces can't be made here, or nothing."""
    lacking = [tool for tool in NEEDED if shutil.which(tool) is None]
    if lacking:
        return f"needs {' and '.join(lacking)} (apt-get install iproute2 nftables)"
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    probe = subprocess.run(["ip", "netns", "add", f"rk{os.getpid()}p"], capture_output=True, text=True)
    if probe.returncode:
        return f"network namespaces can't be made: {probe.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", f"rk{os.getpid()}p"], check=True)
    return ""


class Namespaces:
    """`count` namespaces on one bridge, at 10.99.0.1 and up; it drops `loss_permille` of the UDP packets.

    Packets are cut to the wire's size before the bridge, which drops for each receiver by itself.
    """

    def __init__(self, count: int, loss_permille: float) -> None:
        self.hub = f"rk{os.getpid()}h"
        self.names = [f"rk{os.getpid()}m{number}" for number in range(count)]
        self.addresses = [f"10.99.0.{number + 1}" for number in range(count)]
        self._loss_permille = loss_permille

    def __enter__(self) -> Namespaces:
        try:
            self._make_hub()
            for number, name in enumerate(self.names):
                self._make(number, name)
            if self._loss_permille:
                self._drop()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def command(self, number: int, *command: str) -> list[str]:
        """The command line that runs a command inside of a namespace."""
        return ["ip", "netns", "exec", self.names[number], *command]

    def _make_hub(self) -> None:
        _ip("netns", "add", self.hub)
        _ip("-n", self.hub, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        _ip("-n", self.hub, "link", "set", "br0", "up")

    def _make(self, number: int, name: str) -> None:
        port = f"p{number}"
        _ip("netns", "add", name)
        _ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", port, "netns", self.hub)
        _ip("-n", self.hub, "link", "set", port, "master", "br0", "up")
        _ip("-n", name, "address", "add", f"{self.addresses[number]}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "gso_max_segs", "1")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "route", "add", "224.0.0.0/4", "dev", "eth0")

    def _drop(self) -> None:
        share = f"numgen random mod 10000 < {round(self._loss_permille * 10)}"
        lines = [
            "table bridge drops {",
            "chain forward {",
            "type filter hook forward priority 0;",
            f"ip protocol udp {share} counter drop",
            "}",
            "}",
        ]
        rules = "\n".join(lines) + "\n"
        subprocess.run(
            ["ip", "netns", "exec", self.hub, "nft", "-f", "-"], input=rules, text=True, check=True
        )

    def dropped(self) -> int:
        """How many packets were dropped so far."""
        command = ["ip", "netns", "exec", self.hub, "nft", "list", "ruleset"]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return int(listing.split("counter packets ")[1].split()[0]) if "packets" in listing else 0

    def _remove(self) -> None:
        for name in [*self.names, self.hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
