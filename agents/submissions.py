"""The durable queue of an agent's turns: one row for each, from its acceptance until a day after its end.

A row is a ``Submission`` under the request id of the turn's first run, the *root* of its chain. It is the turn's queue
entry, the head of its stream and its result in one, because they change together:

    pending    accepted; its messages are not stored yet, or (``kind`` retry, continue) recovery has scheduled it
    running    in its slot: the fiber row exists, ``message_id`` and ``first_number`` say what its stream writes
    completed  the assistant message is stored
    aborted    cancelled; what there was of the message is stored
    error      given up; ``error`` is the text that was shown

``number`` counts the events of a finished or interrupted run, so that the next run of the chain goes on behind them.
The ids of later runs are made from the root's (``run_id``), so any id of a chain leads to its row (``root_of``).

Rows are in memory while they are not final. Nothing here commits: writes belong to the caller's stretch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from agents.core.chunks import JsonObject
from agents.core.interruption import Attempts
from runtime import Store

__all__ = [
    "SUBMISSION_STEPS",
    "ChatRequest",
    "Kind",
    "Outcome",
    "Status",
    "Submission",
    "Submissions",
    "root_of",
    "run_id",
]

SUBMISSION_STEPS = ("CREATE TABLE cf_ai_chat_submissions (id VARCHAR PRIMARY KEY, body BLOB NOT NULL)",)

FINAL = frozenset(("completed", "aborted", "error"))

Status: TypeAlias = Literal["pending", "running", "completed", "aborted", "error"]
Kind: TypeAlias = Literal["new", "retry", "continue"]
Outcome: TypeAlias = Literal["done", "error", "aborted", "interrupted"]


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a caller asks for.

    Attributes:
        messages: The user's messages as JSON objects, with ids.
        client_tools: Tools that the caller runs, in their wire form (turns T4).
        aborted: The reason, if the caller's signal had fired before: the messages are stored, no model is called.
    """

    messages: list[JsonObject]
    client_tools: list[JsonObject] = []
    aborted: str | None = None


class Submission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn, over all its runs.

    Attributes:
        root: The request id that the turn was asked for with.
        seq: Its place in the queue.
        request: The ``ChatRequest`` as JSON; empty once the messages are stored.
        client_tools: Those of the request, for all runs.
        status: See the module.
        kind: What the next or present run does.
        run: Number of the present run, from 0.
        message_id: The assistant message that the turn writes; from the start of the first run on.
        parent_id: What that message answers.
        begin_parts: How many parts the message had when the present run began (recovery T7).
        first_number: Number of the present run's first event.
        number: The last event of the runs before, or of all once the turn is final.
        attempts: Tries in a row without progress.
        progress: The chain's content so far, as ``agents.recovery`` counts it.
        model_failures: Failed calls of the model for the present step.
        is_cancelled: Somebody cancelled it; nothing revives it.
        outcome: How it ended, for its readers.
        error: The text of the error, or the reason of the abort.
        created_at_ms, started_at_ms, ended_at_ms: When.
        owes_response: It is final, and its hook has not come to an end yet.
        is_swept: It is final, and its events are not kept any more.
    """

    root: str
    seq: int
    request: bytes = b""
    client_tools: list[JsonObject] = []
    status: Status = "pending"
    kind: Kind = "new"
    run: int = 0
    message_id: str = ""
    parent_id: str | None = None
    begin_parts: int = 0
    first_number: int = 1
    number: int = 0
    attempts: Attempts = Attempts()
    progress: int = 0
    model_failures: int = 0
    is_cancelled: bool = False
    outcome: Outcome | None = None
    error: str = ""
    created_at_ms: int = 0
    started_at_ms: int = 0
    ended_at_ms: int = 0
    owes_response: bool = False
    is_swept: bool = False

    @property
    def request_id(self) -> str:
        """The id of the present run."""
        return run_id(self.root, self.run)

    @property
    def is_final(self) -> bool:
        """Whether nothing will run any more."""
        return self.status in FINAL


class Ended(NamedTuple):
    """A final turn, in memory."""

    at_ms: int
    is_swept: bool
    owes_response: bool


def run_id(root: str, run: int) -> str:
    """The request id of a run of a chain."""
    return f"{root}~{run}" if run else root


def root_of(request_id: str) -> str:
    """The root of the chain that a request id belongs to."""
    head, mark, tail = request_id.rpartition("~")
    return head if mark and head and tail.isdecimal() else request_id


log = logging.getLogger("perdure")

_decoder = msgspec.msgpack.Decoder(Submission)
_encoder = msgspec.msgpack.Encoder()


class Submissions:
    """The rows of one agent."""

    def __init__(self, store: Store, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._open: dict[str, Submission] | None = None
        self._ended: dict[str, Ended] = {}
        self._owing: list[Submission] = []
        self._seq = 0

    def add(self, root: str, request: bytes) -> Submission:
        """Accept a turn."""
        rows = self._rows
        assert root not in rows, f"turn {root} is known"
        self._seq += 1
        added = Submission(root=root, seq=self._seq, request=request, created_at_ms=self._now_ms())
        self._store.execute("INSERT INTO cf_ai_chat_submissions VALUES (?, ?)", (root, _encoder.encode(added)))
        rows[root] = added
        return added

    def save(self, row: Submission) -> Submission:
        """Store a changed row."""
        assert row.status != "pending" or row.outcome is None, f"turn {row.root} is pending and has an outcome"
        query = "UPDATE cf_ai_chat_submissions SET body = ? WHERE id = ?"
        changed = self._store.execute(query, (_encoder.encode(row), row.root)).changed
        assert changed == 1, f"{changed} rows of turn {row.root}"
        if row.is_final:
            self._rows.pop(row.root, None)
            self._ended[row.root] = _ended(row)
        else:
            self._rows[row.root] = row
        return row

    def get(self, request_id: str) -> Submission | None:
        """The turn to which a request id belongs, in whatever state."""
        for root in dict.fromkeys((request_id, root_of(request_id))):
            row = self._rows.get(root) or self._stored(root)
            if row is not None:
                return row
        return None

    def pending(self) -> list[Submission]:
        """What waits for its slot, in order."""
        return sorted((row for row in self._rows.values() if row.status == "pending"), key=lambda row: row.seq)

    def running(self) -> list[Submission]:
        """What is in its slot: at most one, and after a crash the interrupted one."""
        return [row for row in self._rows.values() if row.status == "running"]

    def owing(self) -> list[Submission]:
        """The turns whose hook an earlier life still owes, in order."""
        assert self._rows is not None
        return sorted(self._owing, key=lambda row: row.ended_at_ms)

    def ended(self) -> dict[str, Ended]:
        """The final turns by root, as far as the sweep needs to know them."""
        assert self._rows is not None
        return self._ended

    def forget(self, root: str) -> None:
        """Remove a final row."""
        self._store.execute("DELETE FROM cf_ai_chat_submissions WHERE id = ?", (root,))
        del self._ended[root]

    @property
    def _rows(self) -> dict[str, Submission]:
        if self._open is None:
            self._open = {}
            for (body,) in self._store.execute("SELECT body FROM cf_ai_chat_submissions").rows:
                try:
                    row = _decoded(body)
                except msgspec.DecodeError as error:
                    log.error("a turn cannot be read and is left out: %s", error)  # the others must go on
                    continue
                self._seq = max(self._seq, row.seq)
                if not row.is_final:
                    self._open[row.root] = row
                    continue
                self._ended[row.root] = _ended(row)
                if row.owes_response:
                    self._owing.append(row)
        return self._open

    def _stored(self, root: str) -> Submission | None:
        found = self._store.execute("SELECT body FROM cf_ai_chat_submissions WHERE id = ?", (root,)).rows
        return _decoded(found[0][0]) if found else None


def _ended(row: Submission) -> Ended:
    return Ended(row.ended_at_ms, row.is_swept, row.owes_response)


def _decoded(body: object) -> Submission:
    assert isinstance(body, bytes)
    return _decoder.decode(body)
