"""The package stands alone, is light to import, and has one tree of errors."""

import ast
import subprocess
import sys
from pathlib import Path

import bdd100k_tools
from bdd100k_tools import ToolsError


def test_the_package_does_not_know_the_testbed():
    for file in Path(bdd100k_tools.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "testbed" for name in names), file


def test_every_error_is_of_one_tree():
    errors = [value for name, value in vars(bdd100k_tools).items() if name.endswith("Error")]
    assert len(errors) >= 7
    assert all(issubclass(error, ToolsError) for error in errors)


def test_importing_is_light():
    heavy = ["torch", "numpy", "matplotlib", "PIL", "testbed", "faster_coco_eval", "pandas"]
    code = (
        "import sys, bdd100k_tools, bdd100k_tools.cli; "
        f"sys.exit(', '.join(n for n in {heavy} if n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "\n"
