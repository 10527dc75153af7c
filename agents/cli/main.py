"""The command ``perdure``: its subcommands, and what a person sees when something goes wrong.

Exit codes: 0 done, 1 failed, 2 used wrongly. Tracebacks are for PERDURE_DEBUG=1.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from runtime.errors import PerdureError, RemoteError, UsageError

__all__ = ["app", "main"]

app = typer.Typer(
    name="perdure",
    help=(
        "Durable agents on Ray. TARGET is app.py:Class/name, module:Class/name, or Class/name of one that exists; "
        'a sub-agent is named with its parents, in quotes: "Class/name > Class/name".'
    ),
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

TARGET = Annotated[str, typer.Argument(metavar="TARGET", help="app.py:Class/name, module:Class/name or Class/name")]
JSON = Annotated[bool, typer.Option("--json", help="one JSON value instead of text")]
_data: list[Path] = []


def _room(name: str) -> Any:
    # Loaded by the subcommand that needs it: `perdure --help` must not wait for DuckDB.
    return importlib.import_module(f"agents.cli.{name}")


def _target(text: str) -> Any:
    return _room("targets").find_target(_data[0], text)


def _existing() -> Path:
    """The data directory of a command that makes none.

    Raises:
        UsageError: There is no such folder.
    """
    folder = _data[0]
    if not folder.is_dir() and not os.environ.get("RAY_ADDRESS"):  # a cluster's data lie on its nodes
        raise UsageError(
            f"the data directory {folder} does not exist; name another with --data or PERDURE_DATA, "
            "or make it with `perdure chat` or a script"
        )
    return folder


def _show_version(is_asked: bool) -> None:
    if is_asked:
        try:
            print(f"perdure {importlib.metadata.version('perdure')}")
        except importlib.metadata.PackageNotFoundError:
            print("perdure (not installed: run from its sources)")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="data directory; else PERDURE_DATA, else ./.perdure")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="the version, and leave", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Durable agents on Ray."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit
    folder = data or os.environ.get("PERDURE_DATA") or ".perdure"
    _data[:] = [Path(folder).expanduser().resolve()]
    if _data[0].exists() and not _data[0].is_dir():
        raise UsageError(f"the data directory {_data[0]} is a file; name a folder with --data or PERDURE_DATA")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(context: typer.Context, script: str) -> None:
    """Run a script against the data directory.

    Example: perdure run script.py --its-own options
    """
    raise typer.Exit(_room("ruling").run_script(_data[0], script, context.args))


@app.command()
def chat(
    target: TARGET,
    message: Annotated[str | None, typer.Option("--message", "-m", help="send one message and leave")] = None,
) -> None:
    """Chat with an agent. Started again, it first shows the rest of an unfinished turn.

    Example: perdure chat app.py:Researcher/r-1 -m "What did you find?"
    """
    raise typer.Exit(asyncio.run(_room("chatting").chat(_data[0], _target(target), message)))


@app.command("list")
def list_(as_json: JSON = False) -> None:
    """All objects of the data directory.

    Example: perdure list --json
    """
    raise typer.Exit(asyncio.run(_room("showing").list_objects(_existing(), as_json=as_json)))


@app.command()
def inspect(target: TARGET, as_json: JSON = False) -> None:
    """An agent's state, fibers, interrupted turns and last messages.

    One that is awake is asked; of a sleeping one a copy of its files is read, and it is not woken.

    Example: perdure inspect "Editor/report-42 > Researcher/r-1"
    """
    wanted = _target(target)
    raise typer.Exit(asyncio.run(_room("showing").inspect_object(_existing(), wanted, as_json=as_json)))


@app.command()
def logs(
    target: TARGET,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on with new lines")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="how many of the last lines")] = 100,
) -> None:
    """What an agent and its sub-agents printed and logged.

    Example: perdure logs Editor/report-42 -f
    """
    wanted = _target(target)
    raise typer.Exit(_room("showing").show_logs(_existing(), wanted, follow=follow, lines=lines))


@app.command()
def evict(target: TARGET) -> None:
    """Hibernate an object now, unless something keeps it awake.

    Example: perdure evict Editor/report-42
    """
    wanted = _target(target)
    raise typer.Exit(asyncio.run(_room("ruling").evict(_existing(), wanted)))


@app.command()
def kill(target: TARGET) -> None:
    """Kill -9 the process of an object, to see it recover.

    Example: perdure kill Editor/report-42
    """
    wanted = _target(target)
    raise typer.Exit(asyncio.run(_room("ruling").kill(_existing(), wanted)))


@app.command()
def up() -> None:
    """Start the local Ray of the data directory and hold it.

    Example: perdure --data ./data up
    """
    raise typer.Exit(_room("ruling").up(_data[0]))


@app.command()
def down() -> None:
    """End the local Ray of the data directory. Agents continue at the next start.

    Example: perdure down
    """
    raise typer.Exit(_room("ruling").down(_data[0]))


def _told(error: PerdureError) -> str:
    """One sentence; of an error inside an object also whose it was, and where to read on."""
    name = getattr(error, "object_name", "")
    if not isinstance(error, RemoteError) or not name:
        return str(error)
    return f"{name} failed: {str(error).rstrip('.')}. The traceback: {_room('targets').logs_command(_data[0], name)}"


def main() -> int:
    """Run the command; the exit code."""
    try:
        result = app(standalone_mode=False)
        return result if isinstance(result, int) else 0
    except PerdureError as error:
        if os.environ.get("PERDURE_DEBUG") == "1":
            traceback.print_exc()
        print(f"perdure: {_told(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        explain = getattr(error, "format_message", None)
        if explain is not None:  # the command line itself was wrong
            print(f"perdure: {explain()}  (perdure --help)", file=sys.stderr)
            return 2
        if os.environ.get("PERDURE_DEBUG") == "1":
            traceback.print_exc()
        print(f"perdure: unexpected: {type(error).__name__}: {error} (PERDURE_DEBUG=1 shows more)", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
