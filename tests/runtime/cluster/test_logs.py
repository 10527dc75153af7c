"""What reaches a script's terminal of what its objects log, and what stays in their file."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.cluster.logs import LogTail, log_path
from runtime.errors import RemoteError, UsageError
from runtime.ids import ObjectId
from runtime.wire import Failure, error_from, failure_from

ROOT = Path(__file__).resolve().parents[3]
# An object's process, without Ray: it captures its output for ever, so it is one of its own.
OBJECT = """
import logging, sys
import pytest

from runtime.cluster.logs import capture_output
from runtime.wire import Activation, ClassRef, failure_from
cls = ClassRef(name="Talker", qualname="Talker", module="app")
capture_output(Activation(path=(("Talker", "a b"),), cls=cls, data_dir=sys.argv[1]))
NOTE = "The default model is offline."
try:
    {}["lost"]
except KeyError as error:
    sys.__stdout__.write(failure_from(error).fields["object_name"])
    logging.getLogger("perdure").warning("a turn failed", exc_info=error)
    logging.getLogger("app").warning("the user's own", exc_info=error)
logging.getLogger("agents.models.choose").info(NOTE)
logging.getLogger("agents.models.choose").info(NOTE)
logging.getLogger("app").info("tick")
logging.getLogger("app").info("tick")
"""


def run_object(data_dir: Path) -> tuple[str, str, str]:
    """What it says of itself, its log file, and what a script's terminal shows."""
    out, object_id = io.StringIO(), ObjectId.root("Talker", "a b")
    tail = LogTail(data_dir, {object_id}, out)
    tail.start()
    code = [sys.executable, "-c", OBJECT, str(data_dir)]
    ran = subprocess.run(code, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=True)
    tail.stop()
    return ran.stdout, log_path(data_dir, object_id).read_text(), out.getvalue()


def test_the_traceback_of_an_error_stays_in_the_log_of_the_object_that_raised_it(tmp_path: Path) -> None:
    name, log, shown = run_object(tmp_path)
    assert name == "Talker/a b"
    assert log.count('{}["lost"]') + log.count("KeyError: 'lost'") >= 3
    ours, _, rest = shown.partition("\n")
    assert ours == "(Talker/a b) WARNING perdure: a turn failed; the traceback: perdure logs 'Talker/a b'"
    # A user's own log reaches the terminal as it is.
    assert rest.count("KeyError: 'lost'") == 1


def test_a_note_of_ours_is_shown_once_and_a_line_of_the_user_as_often_as_it_is_said(tmp_path: Path) -> None:
    _, log, shown = run_object(tmp_path)
    assert (log.count("The default model"), shown.count("The default model")) == (2, 1)
    assert (log.count("tick"), shown.count("tick")) == (2, 2)


def test_an_error_of_user_code_is_logged_when_it_becomes_data_and_ours_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "perdure.failures"):
        failure_from(ValueError("mine"))
        failure_from(UsageError("ours, which the message explains"))
    assert [record.getMessage() for record in caplog.records] == ["ValueError: mine"]


def test_an_error_that_passes_through_objects_keeps_the_name_of_the_first() -> None:
    raised = error_from(Failure("RemoteError", "broken", "ValueError", "", fields={"object_name": "Editor/a"}))
    seen = error_from(failure_from(raised))
    assert isinstance(seen, RemoteError)
    assert vars(seen)["object_name"] == "Editor/a"
    assert seen.__notes__ == ["raised in Editor/a; the traceback is in its log: perdure logs Editor/a"]
