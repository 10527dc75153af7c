"""What a turn sends to the model: tools, system prompt, messages (turns A2-A9).

``prepare`` asks the agent once, at the start of a run; ``request_for`` makes the request of each step from that and
from the conversation as it then is. Both only read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from agents.core.chunks import JsonObject
from agents.core.prompt import system_text, to_model_messages, with_nudge
from agents.core.truncation import truncate_old
from agents.models.model import Model, ModelRequest
from agents.sessions.messages import UIMessage
from agents.tools import Tool, Toolset, Workspace, client_tools, create_workspace_tools, merge, method_tools
from runtime.errors import UsageError

__all__ = ["CAPABILITIES", "Inference", "Prompting", "prepare", "request_for"]

# The first line of the block also tells whether a prompt has it already (A3).
CAPABILITIES = "You run inside a Think agent, whose conversation and files are kept from turn to turn."
FILE_TOOLS = ("read", "write", "edit", "list", "find", "grep", "delete", "bash")
FILES = "Your workspace is a private file system; work with it through {tools}. Paths are absolute and begin with /."


class Prompting(Protocol):
    """What an agent says about its turns."""

    max_steps: int
    send_reasoning: bool
    workspace: Workspace

    def get_model(self) -> Model:
        """The model; may be a coroutine."""
        ...

    def get_system_prompt(self) -> str:
        """The system prompt; may be a coroutine."""
        ...

    def get_tools(self) -> Mapping[str, object]:
        """Tools beside the agent's methods; may be a coroutine."""
        ...


class Inference(msgspec.Struct, frozen=True, kw_only=True):
    """What stays the same in all steps of a run."""

    model: Any  # a Model, which msgspec cannot name
    system: str
    tools: Toolset
    max_steps: int
    send_reasoning: bool


class WorkspaceTools:
    """The file tools of one workspace, made once: their schemas cost a millisecond."""

    def __init__(self) -> None:
        self._workspace: Workspace | None = None
        self._tools: dict[str, Tool] = {}

    def of(self, workspace: Workspace) -> dict[str, Tool]:
        """The tools over this workspace."""
        if self._workspace is not workspace:
            self._tools = create_workspace_tools(workspace)
            self._workspace = workspace
        return self._tools


async def prepare(
    agent: Prompting, workspace_tools: WorkspaceTools, client_definitions: Sequence[JsonObject] = ()
) -> Inference:
    """Ask an agent for its model, prompt and tools.

    Args:
        agent: Who is asked.
        workspace_tools: Keeps the file tools from turn to turn.
        client_definitions: Tools that the turn's caller runs (T4).

    Raises:
        Exception: Whatever the agent's own methods raise; the turn fails with it.
    """
    model = await _asked(agent.get_model)
    tools = merge(
        {
            "workspace": workspace_tools.of(agent.workspace),
            "methods": method_tools(agent),
            "get_tools": await _asked(agent.get_tools) or {},
            "client": client_tools(client_definitions),
        },
        agent=agent,
    )
    system = await _asked(agent.get_system_prompt)
    if not isinstance(system, str):
        raise UsageError(f"get_system_prompt() returned {type(system).__name__}; return text")
    return Inference(
        model=model,
        system=with_capabilities(system, tools),
        tools=tools,
        max_steps=agent.max_steps,
        send_reasoning=agent.send_reasoning,
    )


def with_capabilities(system: str, tools: Toolset) -> str:
    """The prompt and, once, what the agent can do."""
    if CAPABILITIES in system:
        return system
    block = [CAPABILITIES]
    files = [name for name in FILE_TOOLS if name in tools]
    if files:
        block.append(FILES.format(tools=", ".join(files)))
    return "\n\n".join(filter(None, (system, "\n".join(block))))


def request_for(inference: Inference, messages: Sequence[UIMessage], request_id: str) -> ModelRequest:
    """The request of the next step.

    Args:
        inference: See ``prepare``.
        messages: The conversation, repaired, with what the turn's own message holds so far.
        request_id: The run, for logs.

    Raises:
        UsageError: There is nothing to send (A7).
    """
    prompt = with_nudge(to_model_messages(truncate_old(messages)))
    if not prompt:
        raise UsageError("the conversation has no messages, so there is nothing to ask the model; send one first")
    system = "\n\n".join(filter(None, (inference.system, system_text(messages))))
    return ModelRequest(system=system, messages=prompt, tools=inference.tools.specs(), request_id=request_id)


async def _asked(method: Callable[[], Any]) -> Any:  # each caller knows what its method returns
    answer = method()
    return await answer if inspect.isawaitable(answer) else answer
