"""Which URIs are subscribed, and which of them an event is news for (chapter 80, 11).

Pure. Failure: `Registry.add` raises McpError -32602 above SUBSCRIPTIONS_MAX.
"""

from __future__ import annotations

from typing import Any, Final

from ipc.client.protocol import Event
from ipc.mcp.frames import INVALID_PARAMS, McpError

SUBSCRIPTIONS_MAX: Final = 256


class Registry:
    # Per URI its channel and the last number forwarded (-1: none); per channel the last number
    # seen and, after a reconnect, that the next event has to tell whether there is a gap.
    _channels: dict[str, str]
    _cursors: dict[str, int]
    _last: dict[str, int]
    _resumed: set[str]

    def __init__(self) -> None:
        self._channels = {}
        self._cursors = {}
        self._last = {}
        self._resumed = set()

    def __contains__(self, uri: str) -> bool:
        return uri in self._channels

    def __bool__(self) -> bool:
        return bool(self._channels)

    def add(self, uri: str, channel: str, since: int | None) -> None:
        if len(self._channels) >= SUBSCRIPTIONS_MAX:
            raise McpError(INVALID_PARAMS, "too many subscriptions")
        self._channels[uri] = channel
        self._cursors[uri] = -1 if since is None else since

    def remove(self, uri: str) -> str | None:
        """Forget a URI. Returns its channel when that has no URI left."""
        channel = self._channels.pop(uri)
        del self._cursors[uri]
        if channel in self._channels.values():
            return None
        self._last.pop(channel, None)
        self._resumed.discard(channel)
        return channel

    def resume(self) -> list[tuple[str, int | None]]:
        """Channels to subscribe again after a reconnect, each with the number to go on after."""
        self._resumed = set(self._last)
        return [(channel, self._after(channel)) for channel in set(self._channels.values())]

    def _after(self, channel: str) -> int | None:
        if channel in self._last:
            return self._last[channel]
        lowest = min(self._cursors[uri] for uri, name in self._channels.items() if name == channel)
        return lowest if lowest >= 0 else None

    def updates(self, event: Event) -> list[tuple[str, dict[str, Any]]]:
        """(URI, parameters of the notification) for everybody whom an event is news for."""
        uris = [uri for uri, channel in self._channels.items() if channel == event.channel]
        if not uris:
            return []
        found: list[tuple[str, dict[str, Any]]] = []
        if event.channel in self._resumed:
            self._resumed.discard(event.channel)
            gap = self._gap(event)
            if gap is not None:
                seq = gap["latest_seq"]
                found += [(uri, {"uri": uri, "seq": seq, "payload": gap}) for uri in uris]
        for uri in uris:
            if event.seq > self._cursors[uri]:
                self._cursors[uri] = event.seq
                found.append((uri, {"uri": uri, "seq": event.seq, "payload": event.payload}))
        self._last[event.channel] = max(event.seq, self._last.get(event.channel, -1))
        return found

    def _gap(self, event: Event) -> dict[str, Any] | None:
        """What was missed between the last event before a reconnect and the first after it."""
        last = self._last[event.channel]
        if event.seq > last + 1:
            return {"dropped": event.seq - last - 1, "latest_seq": event.seq - 1}
        if event.seq <= last:
            # The kernel counts from the start again: nobody knows how much was missed.
            for uri, channel in self._channels.items():
                if channel == event.channel:
                    self._cursors[uri] = -1
            del self._last[event.channel]
            return {"dropped": None, "latest_seq": None}
        return None
