"""What is shipped: the wheel, the list of dependencies, the cluster file."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from tests.house.source import PACKAGES, ROOT, Module, all_modules, imports_of, package_modules

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Import name -> distribution, where they differ.
DISTRIBUTIONS = {"docstring_parser": "docstring-parser", "pytest_asyncio": "pytest-asyncio", "yaml": "types-pyyaml"}
# Comes with a declared one by that one's own design, so it must not be pinned beside it.
BROUGHT = {"httpx2": "anthropic", "grpc": "ray[default]"}
FOLDERS_OF_OURS = {*PACKAGES, "tests", "benchmarks", "examples"}


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[=<>~! ]", requirement)[0].lower() for requirement in requirements}


def imported_by(modules: tuple[Module, ...]) -> set[str]:
    ours = frozenset(module.name for module in modules)
    tops = {one.top for module in modules for one in imports_of(module, ours)}
    foreign = tops - sys.stdlib_module_names - FOLDERS_OF_OURS - set(BROUGHT)
    return {DISTRIBUTIONS.get(name, name) for name in foreign}


DECLARED = names_of(PROJECT["dependencies"])


def test_every_foreign_package_that_is_imported_is_declared() -> None:
    assert sorted(imported_by(package_modules()) - DECLARED) == []


def test_every_declared_dependency_is_imported() -> None:
    assert sorted(DECLARED - imported_by(package_modules())) == []


def test_what_the_tests_and_examples_import_is_declared_too() -> None:
    for_developers = names_of(PROJECT["optional-dependencies"]["dev"])
    # Modules that a test writes into its temporary folder, to see when they are imported.
    written_by_tests = {"package", "watched"}
    assert sorted(imported_by(all_modules()) - DECLARED - for_developers - written_by_tests) == []


@pytest.mark.slow
def test_the_wheel_holds_the_three_packages_with_their_types_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    result = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry_points,) = (archive.read(name).decode() for name in names if name.endswith("/entry_points.txt"))
    tops = {name.split("/")[0] for name in names}
    assert tops == {*PACKAGES, f"perdure-{PROJECT['version']}.dist-info"}
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert {module.where for module in package_modules()} <= names
    assert "perdure = agents.cli.main:main" in entry_points


def test_the_cluster_file_is_valid_for_rays_launcher() -> None:
    found = importlib.util.find_spec("ray")  # its file, without its import
    assert found is not None
    assert found.origin is not None
    schema = json.loads((Path(found.origin).parent / "autoscaler" / "ray-schema.json").read_text())
    config = yaml.safe_load((ROOT / "ray_cluster.yaml").read_text())
    # The launcher turns the short form of `provider: local` into this before it looks.
    config.pop("min_workers")
    jsonschema.validate(config, schema)


def test_each_module_that_the_cluster_file_preloads_exists() -> None:
    named = re.findall(r"RAY_preload_python_modules=(\S+)", (ROOT / "ray_cluster.yaml").read_text())
    modules = {module for names in named for module in names.split(",")}
    assert modules - {module.name for module in package_modules()} == set()
