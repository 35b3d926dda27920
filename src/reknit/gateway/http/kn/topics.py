"""Topics as mod_pubsub writes them: `/what/chat` is our `what/chat`."""

from __future__ import annotations

import re
from typing import Final

from reknit.errors import InvalidTopic
from reknit.topic import check_topic

SUBTOPICS: Final = "kn_subtopics"
_BAD = re.compile(r"[^-_.a-zA-Z0-9\u0080-\U0010ffff]")


def to_topic(text: str, base: str = "") -> str:
    """The topic of a path, or of a URL below `base`. Raises `InvalidTopic`.

    >>> to_topic("/what/chat"), to_topic("http://localhost:8080/kn/what/chat", "http://localhost:8080/kn")
    ('what/chat', 'what/chat')
    """
    if base and text.startswith(base):
        text = text[len(base) :]
    topic = check_topic(text.strip("/"))
    for segment in topic.split("/"):
        if bad := _BAD.search(segment):
            raise InvalidTopic(text, f"has {bad[0]!r}; write letters, digits, '-', '_' and '.'")
        if segment[0] == "." or segment[-1] == ".":
            raise InvalidTopic(text, "has a segment that begins or ends with a dot")
    return topic


def children(parent: str, topics: list[str]) -> list[str]:
    """The names directly under a topic, sorted.

    >>> children("what", ["what/chat", "what/chat/1", "what/apps/x", "who/ann"])
    ['apps', 'chat']
    """
    prefix = f"{parent}/" if parent else ""
    return sorted({one[len(prefix) :].partition("/")[0] for one in topics if one.startswith(prefix)})
