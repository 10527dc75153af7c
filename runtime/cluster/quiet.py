"""Keeping Ray's own lines off a person's terminal.

``log_to_driver=False`` leaves one source: a thread of the driver that prints the raylet's error messages, one long
line for every worker that was killed. A killed agent is what perdure is for; its caller sees a recovery.
"""

from __future__ import annotations

import logging
from typing import Any

import ray._private.worker as ray_worker

__all__ = ["silence_raylet"]

log = logging.getLogger("perdure.ray")


def silence_raylet() -> None:
    """Send the raylet's messages to our log at debug level. Degrades to Ray's behaviour if Ray has changed."""

    def noted(data: Any, *_: object, **__: object) -> None:
        log.debug("%s", data)

    if hasattr(ray_worker, "print_to_stdstream"):
        ray_worker.print_to_stdstream = noted
