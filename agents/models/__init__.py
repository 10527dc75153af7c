"""The models that an agent can talk to.

Importing this loads no vendor's SDK and no HTTP library; the names below are loaded on first use, and what is heavy
only by the first request.
"""

from __future__ import annotations

import importlib

from agents.models.model import Model, ModelFinish, ModelMessage, ModelRequest, ToolCall, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agents.models.choose import default_model
    from agents.models.claude import Claude
    from agents.models.offline import Offline
    from agents.models.scripted import Scripted

__all__ = [
    "Claude",
    "Model",
    "ModelFinish",
    "ModelMessage",
    "ModelRequest",
    "Offline",
    "Scripted",
    "ToolCall",
    "Usage",
    "default_model",
]

_HOMES = {"Claude": "claude", "Offline": "offline", "Scripted": "scripted", "default_model": "choose"}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
