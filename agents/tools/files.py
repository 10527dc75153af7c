"""The file tools of a model: read, write, list, find, grep.

Each is made over an object with the methods it needs, sync or async: a ``Workspace``, or a backend of the user's own
(tools W13). Results are small JSON objects; what a model can mend is a result ``{"error": ...}``, not an exception.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from msgspec import Meta

from agents.core.chunks import JsonObject
from agents.tools.grep import PatternInvalid, Search, SearchTooLong, cut_line
from agents.tools.media import PDF, is_text_type, sniffed_type, stored_type
from agents.tools.tool import Tool, tool
from runtime.errors import UsageError

__all__ = [
    "create_find_tool",
    "create_grep_tool",
    "create_list_tool",
    "create_read_tool",
    "create_workspace_tools",
    "create_write_tool",
]

# All of these are the reference's, so that its prompts and habits hold.
LINES_MAX = 2000
LIST_ENTRIES = 200
LIST_ENTRIES_MAX = 1000
FOUND_MAX = 200
SEARCHED_BYTES_MAX = 1_048_576
CONTEXT_LINES_MAX = 10
# Files of one query, and their bytes: enough to make the query's own cost vanish, little beside the agent's memory.
BATCH_FILES = 100
BATCH_BYTES = 4_000_000

Path = Annotated[str, "Absolute path of the file"]
LineNumber = Annotated[int, Meta(ge=1)]


def create_workspace_tools(workspace: Any) -> dict[str, Tool]:
    """The file tools over one workspace, by name.

    Raises:
        UsageError: It lacks a method that a tool needs.
    """
    made = (create_read_tool, create_write_tool, create_list_tool, create_find_tool, create_grep_tool)
    return {each.name: each for each in (create(workspace) for create in made)}


def create_read_tool(ops: Any) -> Tool:
    """The tool ``read``, over ``read_file``, ``read_file_bytes`` and ``stat``."""
    read_file, read_file_bytes, stat = _needed(ops, "read", "read_file", "read_file_bytes", "stat")

    async def read(
        path: Path,
        offset: Annotated[LineNumber | None, "Number of the first line to read"] = None,
        limit: Annotated[LineNumber | None, "How many lines to read"] = None,
    ) -> JsonObject:
        info = await stat(path)
        if info is None:
            return {"error": f"File not found: {path}"}
        if info.type == "directory":
            return {"error": f"{path} is a directory, not a file"}
        media_type = stored_type(info.mime_type) or sniffed_type(await read_file_bytes(path) or b"")
        if not is_text_type(media_type):
            return _media(path, info, media_type)
        text = await read_file(path)
        return {"error": f"File not found: {path}"} if text is None else _numbered(path, text, offset, limit)

    return tool(
        name="read",
        description="Read a file of the workspace. Text comes with line numbers; use offset and limit for long files. "
        "Of images, PDFs and other binary files only type and size are given.",
        execute=read,
    )


def create_write_tool(ops: Any) -> Tool:
    """The tool ``write``, over ``write_file`` and ``mkdir``."""
    write_file, mkdir = _needed(ops, "write", "write_file", "mkdir")

    async def write(path: Path, content: Annotated[str, "The whole new content of the file"]) -> JsonObject:
        parent = path.rstrip("/").rpartition("/")[0]
        if parent:
            await mkdir(parent, recursive=True)
        await write_file(path, content)
        return {"path": path, "bytes_written": len(content.encode()), "lines": content.count("\n") + 1}

    return tool(
        name="write",
        description="Write a file of the workspace. It is created if it does not exist and replaced if it does; "
        "missing directories are made.",
        execute=write,
    )


def create_list_tool(ops: Any) -> Tool:
    """The tool ``list``, over ``read_dir``."""
    (read_dir,) = _needed(ops, "list", "read_dir")
    stat = _awaitable(ops.stat) if hasattr(ops, "stat") else None

    async def list_(
        path: Annotated[str, "Absolute path of the directory"] = "/",
        limit: Annotated[int, Meta(ge=1, le=LIST_ENTRIES_MAX), "How many entries to return at most"] = LIST_ENTRIES,
        offset: Annotated[int, Meta(ge=0), "How many entries to leave out at the beginning"] = 0,
    ) -> JsonObject:
        entries = [_listed(info) for info in await read_dir(path, limit=limit, offset=offset)]
        # An empty list for a misspelt path would send the model the wrong way.
        if not entries and stat is not None:
            info = await stat(path)
            if info is None:
                return {"error": f"Directory not found: {path}"}
            if info.type != "directory":
                return {"error": f"{path} is a {info.type}, not a directory"}
        return {"path": path, "count": len(entries), "entries": entries}

    return tool(
        name="list",
        description="List a directory of the workspace: directories first, files with their sizes.",
        execute=list_,
    )


def create_find_tool(ops: Any) -> Tool:
    """The tool ``find``, over ``glob``."""
    (glob,) = _needed(ops, "find", "glob")

    async def find(
        pattern: Annotated[str, "Glob pattern, such as **/*.py, src/**/test_*.md or {a,b}/*.txt"],
    ) -> JsonObject:
        found = await glob(pattern)
        shown = [f"{info.path}/" if info.type == "directory" else info.path for info in found[:FOUND_MAX]]
        result: JsonObject = {"pattern": pattern, "count": len(found), "files": shown}
        if len(found) > FOUND_MAX:
            result.update(truncated=True, showing=FOUND_MAX)
        return result

    return tool(
        name="find",
        description="Find files and directories of the workspace by a glob pattern: * and ? match within a name, "
        "** matches any directories, [abc] and {a,b} match alternatives.",
        execute=find,
    )


def create_grep_tool(ops: Any) -> Tool:
    """The tool ``grep``, over ``glob`` and ``read_file``; ``read_files`` is used for many at once if there is one."""
    glob, read_file = _needed(ops, "grep", "glob", "read_file")
    read_files = _reader(getattr(ops, "read_files", None), read_file)

    async def grep(
        query: Annotated[str, "What to search for, a regular expression unless fixed_string is true"],
        include: Annotated[str, "Glob pattern of the files to search"] = "**/*",
        fixed_string: Annotated[bool, "Take the query literally"] = False,
        case_sensitive: Annotated[bool, "Tell capital from small letters"] = False,
        context_lines: Annotated[int, Meta(ge=0, le=CONTEXT_LINES_MAX), "Lines to show around each match"] = 0,
    ) -> JsonObject:
        files = [info for info in await glob(include) if info.type == "file"]
        small = [info for info in files if info.size <= SEARCHED_BYTES_MAX]
        try:
            search = Search(query, is_fixed=fixed_string, is_case_sensitive=case_sensitive, context_lines=context_lines)
            for batch in _batches(small):
                for path, text in (await read_files([info.path for info in batch])).items():
                    search.feed(path, text)
                    if search.is_truncated:
                        return _grep_result(query, search, len(files) - len(small))
                await asyncio.sleep(0)  # others of the agent get a turn
        except (PatternInvalid, SearchTooLong) as error:
            return {"error": error.message}
        return _grep_result(query, search, len(files) - len(small))

    return tool(
        name="grep",
        description="Search the files of the workspace line by line, by a regular expression or a fixed string. "
        "Returns the matching lines with file and line number.",
        execute=grep,
    )


def _needed(ops: Any, tool_name: str, *methods: str) -> list[Callable[..., Awaitable[Any]]]:
    """The methods of a backend, each awaitable.

    Raises:
        UsageError: One is missing.
    """
    missing = [name for name in methods if not callable(getattr(ops, name, None))]
    if missing:
        raise UsageError(f"tool {tool_name} needs the method {', '.join(missing)}, which {ops!r:.80} lacks")
    return [_awaitable(getattr(ops, name)) for name in methods]


def _awaitable(method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    async def call(*args: Any, **kwargs: Any) -> Any:  # whatever the backend's method takes and gives
        result = method(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    return call


def _media(path: str, info: Any, media_type: str) -> JsonObject:
    described = {"path": path, "name": info.name, "media_type": media_type, "size_bytes": info.size}
    if media_type.startswith("image/"):
        return {"kind": "image", **described}
    if media_type == PDF:
        return {"kind": "file", **described}
    return {"kind": "binary", **described, "unsupported": True}


def _numbered(path: str, text: str, offset: int | None, limit: int | None) -> JsonObject:
    lines = text.split("\n")
    first = (offset or 1) - 1
    end = len(lines) if limit is None else min(first + limit, len(lines))
    wanted = lines[first:end]
    shown = [f"{number}\t{cut_line(line)}" for number, line in enumerate(wanted[:LINES_MAX], first + 1)]
    if len(wanted) > LINES_MAX:
        shown.append(f"... ({len(wanted) - LINES_MAX} more lines truncated)")
    result: JsonObject = {"path": path, "content": "\n".join(shown), "total_lines": len(lines)}
    if offset is not None or limit is not None:
        result.update(from_line=first + 1, to_line=end)
    return result


def _listed(info: Any) -> str:
    if info.type == "directory":
        return f"{info.name}/"
    return f"{info.name} ({_size(info.size)})" if info.type == "file" else str(info.name)


def _size(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    if size < 1024 * 1024:
        return f"{size / 1024:.1f} KB"
    return f"{size / (1024 * 1024):.1f} MB"


def _reader(
    read_files: Callable[..., Any] | None, read_file: Callable[..., Awaitable[Any]]
) -> Callable[[Sequence[str]], Awaitable[dict[str, str]]]:
    """Reads the texts of several files, at once if the backend can."""

    async def together(paths: Sequence[str]) -> dict[str, str]:
        found = await _awaitable(read_files)(paths) if read_files is not None else {}
        return {path: data.decode(errors="replace") for path, data in found.items()}

    async def one_by_one(paths: Sequence[str]) -> dict[str, str]:
        texts = {path: await read_file(path) for path in paths}
        return {path: text for path, text in texts.items() if text is not None}

    return together if read_files is not None else one_by_one


def _batches(files: Sequence[Any]) -> list[list[Any]]:
    batches: list[list[Any]] = []
    size = BATCH_BYTES
    for info in files:
        if size + info.size > BATCH_BYTES or len(batches[-1]) >= BATCH_FILES:
            batches.append([])
            size = 0
        batches[-1].append(info)
        size += info.size
    return batches


def _grep_result(query: str, search: Search, skipped: int) -> JsonObject:
    result: JsonObject = {
        "query": query,
        "files_searched": search.files_searched,
        "files_with_matches": search.files_with_matches,
        "total_matches": len(search.hits),
        "matches": search.hits,
    }
    if search.is_truncated:
        result["truncated"] = True
    if skipped:
        result.update(files_skipped=skipped, note=f"{skipped} file(s) skipped (larger than 1 MB)")
    return result
