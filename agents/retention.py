"""How long the events and the outcome of a turn are kept (recovery S1).

Events are there for readers that come late: ten minutes after the end nobody is on the way any more. The row with the
outcome is there for callers that repeat a keyed call, so it stays as long as the answer of any other keyed call. A
sweep removes what is due; it is made when the agent starts, when its queue is empty, and by an alarm for the events.
The messages are not touched: they are the conversation's.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from agents.streams import forget_frames
from agents.submissions import Submissions
from runtime import Store

__all__ = ["EVENTS_KEPT_MS", "OUTCOME_KEPT_MS", "sweep"]

EVENTS_KEPT_MS = 600 * 1000
OUTCOME_KEPT_MS = 24 * 3600 * 1000
# Deleting is work on the loop's thread; the rest is done by the next sweep.
SWEPT_MAX = 500


def sweep(store: Store, submissions: Submissions, now_ms: Callable[[], int]) -> int | None:
    """Remove what is due, in the caller's stretch; returns when events are due next, None if there are none."""
    now = now_ms()
    unswept = {root: turn for root, turn in submissions.ended().items() if not turn.is_swept}
    due = [root for root, turn in unswept.items() if turn.at_ms + EVENTS_KEPT_MS <= now][:SWEPT_MAX]
    if due:
        forget_frames(store, due)
        for root in due:
            row = submissions.get(root)
            assert row is not None, f"turn {root} ended and has no row"
            submissions.save(msgspec.structs.replace(row, is_swept=True))
    old = [
        root
        for root, turn in submissions.ended().items()
        if turn.is_swept and not turn.owes_response and turn.at_ms + OUTCOME_KEPT_MS <= now
    ]
    for root in old[:SWEPT_MAX]:
        submissions.forget(root)
    left = [turn.at_ms for root, turn in unswept.items() if root not in set(due)]
    return min(left) + EVENTS_KEPT_MS if left else None
