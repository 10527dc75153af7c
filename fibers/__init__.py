"""Durable functions: a fiber's row outlives its process, and what a death interrupted is found and handled.

The public names of this package.
"""

from fibers.fiber import FiberContext, current_fiber
from fibers.journal import FIBER_STEPS, to_json
from fibers.records import FiberOptions, RecoveredFiber
from fibers.runner import FiberRunner

__all__ = ["FIBER_STEPS", "FiberContext", "FiberOptions", "FiberRunner", "RecoveredFiber", "current_fiber", "to_json"]
