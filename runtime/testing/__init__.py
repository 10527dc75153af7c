"""For tests: virtual time, and many objects in one process with faults injected where a test wants them.

from runtime.testing import LocalCluster, run
"""

from __future__ import annotations

from runtime.testing.clock import Hung, VirtualClock, VirtualLoop, run
from runtime.testing.cluster import LocalCluster
from runtime.testing.faults import Crashed, Effect

__all__ = ["Crashed", "Effect", "Hung", "LocalCluster", "VirtualClock", "VirtualLoop", "run"]
