"""What an agent can do for a model: tools, and the workspace of files behind some of them."""

from agents.tools.execution import ToolOutcome, run_tool, wants_approval
from agents.tools.files import (
    create_find_tool,
    create_grep_tool,
    create_list_tool,
    create_read_tool,
    create_workspace_tools,
    create_write_tool,
)
from agents.tools.schema import ToolContext
from agents.tools.tool import Tool, parse_input, tool
from agents.tools.toolset import Toolset, check_tools, client_tools, merge, method_tools
from agents.tools.workspace import FileInfo, LoadReport, Workspace, WorkspaceInfo

__all__ = [
    "FileInfo",
    "LoadReport",
    "Tool",
    "ToolContext",
    "ToolOutcome",
    "Toolset",
    "Workspace",
    "WorkspaceInfo",
    "check_tools",
    "client_tools",
    "create_find_tool",
    "create_grep_tool",
    "create_list_tool",
    "create_read_tool",
    "create_workspace_tools",
    "create_write_tool",
    "merge",
    "method_tools",
    "parse_input",
    "run_tool",
    "tool",
    "wants_approval",
]
