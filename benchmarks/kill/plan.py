"""Which kills, in which order: drawn from a seed, corrected by what was hit.

Half of all kills go into open streams, the other half evenly to the other phases. A shot can miss: a tool may have
ended before the signal arrives. It then counts where it hit, and its phase is drawn again. ``Plan.next`` says what to
aim at until every phase has its share; because of the misses that may take a few kills more than were asked for.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

__all__ = ["PHASES", "Plan", "shares"]

PHASES = (
    "stream",
    "parent",
    "tool",
    "start_up",
    "commit",
    "checkpoint",
    "hibernation",
    "recovery",
    "alarm",
    "keeper",
)
# Of the wanted kills; then the run ends, whatever is short.
KILLS_MAX_FACTOR = 1.3


def shares(kills: int) -> dict[str, int]:
    """How many kills each phase is to get."""
    each = max(1, kills // 2 // (len(PHASES) - 1))
    others = dict.fromkeys(PHASES[1:], each)
    return {"stream": max(1, kills - sum(others.values())), **others}


class Plan:
    """The order of one run.

    Args:
        kills: How many are wanted.
        seed: The same seed draws the same order, as far as the same phases are hit.
    """

    def __init__(self, kills: int, seed: int) -> None:
        self.kills = kills
        self.shares = shares(kills)
        self._random = random.Random(f"plan {seed}")
        self._rivals = max(2, kills // 40)
        self._rivals_sent = 0

    def next(self, hits: Mapping[str, int]) -> str | None:
        """The phase to aim at; ``rival`` now and then, a second instance beside a live one; None at the end."""
        done = sum(hits.values())
        missing = {phase: share - hits.get(phase, 0) for phase, share in self.shares.items()}
        missing = {phase: count for phase, count in missing.items() if count > 0}
        if self._rivals_sent < self._rivals and done >= (self._rivals_sent + 0.5) * self.kills / self._rivals:
            self._rivals_sent += 1
            return "rival"
        if done >= self.kills * KILLS_MAX_FACTOR or (done >= self.kills and not missing):
            return None
        if not missing:
            return "stream"
        return self._random.choices(list(missing), weights=list(missing.values()))[0]
