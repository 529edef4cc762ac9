"""The scripts under test: they are no package, so they are imported by their paths."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def script(name: str) -> ModuleType:
    spec = spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def theory() -> ModuleType:
    return script("theory")


@pytest.fixture(scope="session")
def stability() -> ModuleType:
    return script("stability")


@pytest.fixture(scope="session")
def scale() -> ModuleType:
    return script("scale")
