"""All code that imports Ray; importing this package alone loads none of it.

What other packages may use of it: the own Ray of a data directory, the list of its objects while that does not run,
logs, and loading a class by its reference.
"""

from runtime.classes import load_class
from runtime.cluster.asleep import sleeping_objects
from runtime.cluster.local import Ended, RayStatus, end, hold, status
from runtime.cluster.logs import log_path

__all__ = ["Ended", "RayStatus", "end", "hold", "load_class", "log_path", "sleeping_objects", "status"]
