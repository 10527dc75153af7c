"""The model of who names none: Claude if there is a key, else the offline one."""

from __future__ import annotations

import logging
import os

from agents.models.claude import KEY_VARIABLE, Claude
from agents.models.offline import Offline

__all__ = ["default_model"]

_log = logging.getLogger(__name__)
_told: set[str] = set()


def default_model() -> Claude | Offline:
    """Claude if ANTHROPIC_API_KEY is set, else ``Offline``; a process logs once which."""
    model = Claude() if os.environ.get(KEY_VARIABLE) else Offline()
    if model.model_id not in _told:
        _told.add(model.model_id)
        reason = f"{KEY_VARIABLE} is set" if isinstance(model, Claude) else f"{KEY_VARIABLE} is not set"
        _log.info("The default model is %s (%s).", model.model_id, reason)
    return model
