"""Flower's grid without its network: nodes answer at once, in this process, each message with a context of its own.

What a site remembers goes through Flower's own encoding after every message, as it does between a SuperNode and its processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.serde import context_from_proto, context_to_proto
from flwr.supercore.task_identity import TaskIdentity

from eigenpact.engines.flower.kits import SITE_KEY
from eigenpact.engines.flower.site import client


class NodeGrid:
    """What :class:`GridPost` needs of a grid; nodes are given by the files that describe their sites."""

    def __init__(self, described: Mapping[str, Path]) -> None:
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # as in a ServerApp's process
        self.described = dict(described)
        self.names = {i + 1: name for i, name in enumerate(sorted(described))}
        self.contexts = {node: self._context(node) for node in self.names}
        self.registered: dict[int, str] = dict(self.names)
        self.silent: set[str] = set()
        self.replies: list[Message] = []
        self.counted = 0

    def _context(self, node: int) -> Context:
        return Context(1, node, {SITE_KEY: str(self.described[self.names[node]])}, RecordDict(), {})

    def get_nodes(self) -> list[Any]:
        return [SimpleNamespace(node_id=node, name=self.registered.get(node, "")) for node in self.names]

    def get_node_ids(self) -> list[int]:
        return list(self.names)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        identifiers = []
        for message in messages:
            self.counted += 1
            message.metadata.__dict__["_message_id"] = str(self.counted)
            identifiers.append(str(self.counted))
            node = message.metadata.dst_node_id
            if self.names[node] not in self.silent:
                self.replies.append(client(message, self.contexts[node]))
                self.contexts[node] = context_from_proto(context_to_proto(self.contexts[node]))
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        wanted = set(message_ids)
        came = [reply for reply in self.replies if reply.metadata.reply_to_message_id in wanted]
        self.replies = [reply for reply in self.replies if reply not in came]
        return came

    def fail(self, identifier: str, reason: str, message: Message) -> None:
        """Put an error where a reply is expected."""
        message.metadata.__dict__["_message_id"] = identifier
        self.replies.append(Message(Error(0, reason), reply_to=message))
