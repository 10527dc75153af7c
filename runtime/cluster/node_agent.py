"""Stands in for Ray's dashboard agent in an own Ray.

A raylet insists on an agent: it starts one, waits until the agent has written its ports, and dies with it. Ray's own
agent serves the dashboard and the metrics, which an own Ray has not; it takes 2 s to import and 100 MB to keep. This
one says that there are no such services (port -1, as Ray's minimal installation does) and lives as long as the raylet,
which it sees by the end of its standard input.

It runs as a script, not as a module of the package, so that it imports nothing: it is up before the raylet asks.
"""

from __future__ import annotations

import os
import sys

SERVICES = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")


def main(arguments: list[str]) -> None:
    """Write one port file for each service, then wait for the raylet to end."""
    options = dict(
        argument[2:].split("=", 1) for argument in arguments if argument.startswith("--") and "=" in argument
    )
    for service in SERVICES:
        path = os.path.join(options["session-dir"], f"{service}_{options['node-id']}")
        with open(f"{path}.draft", "w") as draft:
            draft.write("-1")
        os.replace(f"{path}.draft", path)
    while sys.stdin.buffer.read(4096):
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
