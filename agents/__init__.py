"""Chat agents on durable objects: turns that survive the death of their process, their node and their callers.

The public names of this package; none of them loads Ray, a model SDK or an HTTP library.
"""

from agents.agent import Agent
from agents.chat import ChatEvent, ChatStream
from agents.sessions.messages import UIMessage
from agents.sessions.session import Session
from agents.think import Think
from agents.tools import Workspace, tool
from agents.turn_queue import ChatResponse

__all__ = ["Agent", "ChatEvent", "ChatResponse", "ChatStream", "Session", "Think", "UIMessage", "Workspace", "tool"]
