"""``Think``: a chat agent whose turns survive the death of its process, of its node and of its callers.

This class only composes. The conversation is ``sessions.Session``, the turns are ``turn_queue.TurnQueue``, the
caller's side is ``chat.ChatStream``; what is here are their public names, and the hooks that a subclass overrides.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

from agents.agent import Agent
from agents.chat import ChatInput, ChatStream, attach_stream, chat_stream
from agents.core.chunks import JsonObject
from agents.models.model import Model
from agents.models.relay import reach_models
from agents.sessions.messages import UIMessage
from agents.sessions.session import SESSION_STEPS, Session
from agents.streams import STREAM_STEPS
from agents.submissions import SUBMISSION_STEPS
from agents.tools import Workspace, check_tools
from agents.turn_queue import ChatResponse, TurnQueue
from runtime import AlarmInfo, CancelToken, Context, caller_side, idempotent, not_callable
from runtime.errors import UsageError

__all__ = ["Think"]

THINK_STEPS = SESSION_STEPS + STREAM_STEPS + SUBMISSION_STEPS


# What one turn may bring with it. The database has 64 MB of memory for everything.
REQUEST_BYTES_MAX = 4_000_000


class Think(Agent):
    """A chat agent; override ``get_model`` and chat with it.

    Attributes:
        max_steps: Model calls of one turn, at most.
        chat_recovery: Whether a turn that a death interrupted goes on in the next instance.
        send_reasoning: Whether callers see the model's reasoning.
        workspace: The agent's files.
        session: Its conversation.
    """

    max_steps: int = 10
    chat_recovery: bool = True
    send_reasoning: bool = True

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        check_tools(cls)

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        ctx.migrate("think", THINK_STEPS)
        self.workspace = Workspace(ctx.storage.sql, now_ms=ctx.clock.now_ms)
        self.session = Session(ctx.store, ctx.clock.now_ms)
        self._turns = TurnQueue(self, ctx, self.session, self._fibers, self._awake)

    @not_callable
    async def boot(self) -> None:
        """Interrupted work and the agent's own start first, then turns are taken."""
        reach_models(self.ctx)
        await super().boot()
        await self._turns.start()

    @not_callable
    async def alarm(self, info: AlarmInfo) -> None:
        """The agent's one alarm: also sweeps the events of turns that ended long ago."""
        await self._turns.sweep()
        await super().alarm(info)

    # For the subclass

    @not_callable
    def get_model(self) -> Model:
        """The model of the next turn; to be overridden."""
        name = type(self).__name__
        raise UsageError(
            f"{name} has no model: override get_model(), for example: def get_model(self): return Claude()"
        )

    @not_callable
    def get_system_prompt(self) -> str:
        """What the model is told first."""
        return "You are a helpful assistant."

    @not_callable
    def get_tools(self) -> Mapping[str, object]:
        """Tools besides the methods under ``@tool``, by name."""
        return {}

    @not_callable
    async def on_chat_response(self, response: ChatResponse) -> None:
        """A turn has ended and is stored; what this raises is logged."""

    # Chatting

    @caller_side
    def chat(
        self,
        input: ChatInput,
        callback: object = None,
        *,
        signal: CancelToken | None = None,
        client_tools: Sequence[JsonObject] = (),
        channel: str | None = None,
        metadata: JsonObject | None = None,
        tools: object = None,
        reattach: bool = True,
    ) -> ChatStream:
        """Send a message and follow the turn that answers it.

            async with agent.chat(text) as events:      # numbered events, over all deaths of the agent
                async for event in events: ...
            reply = await agent.chat(text)              # only the assistant message
            await agent.chat(text, callback)            # on_start, on_event, then on_done, on_error or on_interrupted

        Leaving the block early cancels the turn; ``events.detach()`` first lets it run.

        Args:
            input: Text, a message, or several messages.
            callback: An object with some of the methods above; they run here, at the caller.
            signal: A cancel token: when it fires, the turn is aborted and what there is of the answer is kept.
            client_tools: Tools that the caller runs: ``{name, description?, parameters?}``.
            channel: Stamped on the user message.
            metadata: Stamped on the user message.
            tools: Ignored, with a warning: tools belong to the agent.
            reattach: Whether to go on with a recovered turn when the agent's process has died.

        Raises:
            TurnNotAllowed: At once, from inside a turn of the same agent.
            TurnFailed: The turn ended in an error.
            TurnAborted: It was cancelled; only from an awaited chat.
        """
        options = {"signal": signal, "client_tools": client_tools, "channel": channel, "metadata": metadata}
        return chat_stream(self, input, callback, **options, tools=tools, reattach=reattach)  # type: ignore[arg-type]

    @caller_side
    def attach(self, request_id: str, *, after: int = 0, reattach: bool = True) -> ChatStream:
        """Follow a turn that was started before, from the event behind ``after`` on; leaving never cancels it.

        Raises:
            UnknownTurn: While iterating: there is no such turn, or its events are not kept any more.
        """
        return attach_stream(self, request_id, after=after, reattach=reattach)

    @idempotent
    async def follow_turn(self, request: bytes | None, request_id: str, after: int) -> AsyncGenerator[bytes, None]:
        """What ``chat`` follows: frames of events, last a JSON object with the outcome; see ``agents.streams``."""
        _check_turn(request, request_id)
        async for item in self._turns.follow(request, request_id, after):
            yield item

    @idempotent
    async def begin_turn(self, request: bytes, request_id: str) -> None:
        """What ``chat`` calls to start a turn that it does not follow."""
        _check_turn(request, request_id)
        await self._turns.accept(request, request_id)

    @idempotent
    async def cancel_chat(self, request_id: str, reason: str = "") -> None:
        """Abort a turn, by the id of any run of its chain; an id that is not known is no error.

        Raises:
            UsageError: The id or the reason is no text.
        """
        _check_turn(None, request_id)
        if not isinstance(reason, str):
            raise UsageError(f"the reason of an abort must be text, not {reason!r:.80}")
        await self._turns.cancel(request_id, reason)

    @idempotent
    async def abort_request(self, request_id: str, reason: str = "") -> None:
        """The same as ``cancel_chat``."""
        await self.cancel_chat(request_id, reason)

    @idempotent
    async def abort_all_requests(self) -> None:
        """Abort the running turn; those that wait for their slot stay."""
        await self._turns.abort_all()

    @idempotent
    async def open_turns(self) -> list[str]:
        """The request ids of turns that have not ended, in order."""
        return self._turns.open_turns()

    @idempotent
    async def get_messages(self) -> list[UIMessage]:
        """The conversation."""
        return self.session.get_history()

    @property
    def messages(self) -> list[UIMessage]:
        """The conversation, read-only."""
        return self.session.get_history()


def _check_turn(request: object, request_id: object) -> None:
    """Refuse at the door what would be stored, and stumbled over in every later life."""
    if not isinstance(request_id, str) or not request_id:
        raise UsageError(f"the id of a turn must be text, not {request_id!r:.80}")
    if request is not None and not isinstance(request, bytes):
        raise UsageError(f"the request of a turn must be bytes, as chat() makes them, not {request!r:.80}")
    if request is not None and len(request) > REQUEST_BYTES_MAX:
        raise UsageError(
            f"the messages of one turn may have {REQUEST_BYTES_MAX:,} bytes, these have {len(request):,}: "
            "put what is large into the workspace and name its path"
        )
