"""What is committed works on every machine: no path of one, no registry's address."""

from __future__ import annotations

import re

import pytest

from tests.house.source import ROOT, tracked_files

# Written in pieces, or this file would be its own first find.
MACHINE_PATH = re.compile(
    r"(?<![\w./~$}-])/(?:" + "|".join(["work", "root", r"home/[\w.-]+", r"Users/[\w.-]+"]) + r")(?=/|\b)"
)
REGISTRY = re.compile(
    "|".join(
        [
            r"https?://[^\s\"')]+/(?:simple|packages|pool)/",
            r"pypi" + r"\.org",
            r"python" + r"hosted\.org",
            r"npm" + r"js\.org",
            r"deb" + r"\.debian\.org",
            r"--(?:extra-)?index" + r"-url",
            r"--find" + r"-links",
            r"\bfile" + r":///",
        ]
    )
)
PIN = re.compile(r"[A-Za-z0-9][\w.-]*==[\w.!+]+")


def finds(text: str) -> list[str]:
    """The machine's paths and registries' addresses in a text."""
    return [match.group() for pattern in (MACHINE_PATH, REGISTRY) for match in pattern.finditer(text)]


def test_no_tracked_file_names_a_path_of_one_machine_or_a_registry() -> None:
    found: list[str] = []
    for path in tracked_files():
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a recorded binary, say in tests/golden
            text = (ROOT / path).read_bytes().decode("latin-1")
        found.extend(f"{path}: {find}" for find in finds(text))
    assert found == []


def test_the_constraints_are_pins_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#") and not PIN.fullmatch(line)] == []


@pytest.mark.parametrize(
    "text",
    [
        "see " + "/wo" + "rk/main/x.py",
        'open("' + "/ro" + 'ot/.cache")',
        "/ho" + "me/ada/perdure",
        "pip install --index" + "-url x",
        "https://example.test/" + "simple/ray/",
    ],
)
def test_a_path_or_an_address_is_seen(text: str) -> None:
    assert len(finds(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "agents/think/root/x",
        "https://example.test/root/a",
        "/workspace/a.txt",
        "the /rooted tree",
        "~/perdure",
        "./work/a",
    ],
)
def test_paths_inside_a_project_or_an_address_pass(text: str) -> None:
    assert finds(text) == []
