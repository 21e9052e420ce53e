"""The slot of a session: who may act on it now, and who waits, in order of arrival.

Turns, recovery, closing and storing of attachments take turns on a session id, whether the session
is live or not. A place is taken at once, without waiting, so that arrival decides the order; ends
(close, kill, delete) go to the front.

Failure: `SlotFull` when too many wait, `SlotTimeout` when the wait is over.
"""

from __future__ import annotations

import asyncio
from collections import deque

from supervisor.agent.limits import QUEUED_TURNS_MAX


class SlotFull(Exception):
    """As many wait as may wait."""


class SlotTimeout(Exception):
    """The slot did not come free in time."""


class Place:
    """A place in the queue of one slot, then the slot itself; `leave` gives back either."""

    __slots__ = ("_slots", "granted", "key", "turn")

    def __init__(self, slots: Slots, key: str, granted: asyncio.Future[None], turn: bool) -> None:
        self._slots = slots
        self.key = key
        self.granted = granted
        self.turn = turn

    async def wait(self, seconds: float | None = None) -> None:
        """Until the slot is ours. Raises SlotTimeout; the place is given back then."""
        try:
            await asyncio.wait_for(asyncio.shield(self.granted), seconds)
        except TimeoutError:
            self.leave()
            raise SlotTimeout from None
        except asyncio.CancelledError:
            self.leave()
            raise

    def leave(self) -> None:
        self._slots._left(self)


class Slots:
    # The queue of each slot that anybody holds or waits for; its first place holds the slot.

    def __init__(self) -> None:
        self._queues: dict[str, deque[Place]] = {}

    def enter(self, key: str, *, front: bool = False, turn: bool = False) -> Place:
        """Take a place; only turns are counted against the limit. Raises SlotFull."""
        queue = self._queues.setdefault(key, deque())
        if turn and self.waiting_turns(key) >= QUEUED_TURNS_MAX:
            raise SlotFull
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = Place(self, key, granted, turn)
        if front and queue:
            queue.insert(1, place)
        else:
            queue.append(place)
        if queue[0] is place:
            granted.set_result(None)
        return place

    def waiting_turns(self, key: str) -> int:
        """Turns behind the holder."""
        queue = self._queues.get(key)
        return 0 if not queue else sum(1 for place in list(queue)[1:] if place.turn)

    def turns(self, key: str) -> int:
        """Turns that hold the slot or wait for it."""
        return sum(1 for place in self._queues.get(key, ()) if place.turn)

    def _left(self, place: Place) -> None:
        queue = self._queues.get(place.key)
        if queue is None or place not in queue:
            return
        held = queue[0] is place
        queue.remove(place)
        if not queue:
            del self._queues[place.key]
        elif held and not queue[0].granted.done():
            queue[0].granted.set_result(None)
