"""What the doctor finds on this machine, and what it says and does when something lacks."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from testbed.cli import doctor as room
from testbed.cli.doctor import (
    LIBRARIES,
    Check,
    check_distribution,
    check_distributions,
    check_libraries,
    check_python,
    check_sumo,
    doctor,
    remedies,
)

NOWHERE = {"libnowhere.so.9": "libnowhere9", "libc.so.6": "libc6", "libgone.so.1": "libgone1"}
INSTALL = "apt-get install -y --no-install-recommends libnowhere9 libgone1"


@pytest.fixture
def apt(tmp_path, monkeypatch):
    """Put a program called apt-get first in PATH that writes down how it was called."""
    log = tmp_path / "log"
    program = tmp_path / "bin" / "apt-get"
    program.parent.mkdir()

    def install(status: int = 0) -> Path:
        program.write_text(f'#!/bin/sh\necho "$DEBIAN_FRONTEND $*" >> {log}\nexit {status}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        return log

    return install


# Checks -------------------------------------------------------------------------------


def test_python():
    assert not check_python().need
    assert check_python().found == ".".join(map(str, sys.version_info[:3]))
    assert check_python((9, 1)).need == "use Python 9.1 or newer"


def test_every_required_distribution_is_checked_with_its_version():
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())
    names = [re.split("[>=]", line)[0] for line in project["project"]["dependencies"]]
    checks = check_distributions()
    assert [check.what for check in checks] == names
    assert [check.found for check in checks] == [metadata.version(name) for name in names]
    assert not any(check.need for check in checks)


def test_a_project_that_is_not_installed():
    assert check_distributions("no-such-project-anywhere") == [
        Check("no-such-project-anywhere", "no", "install the testbed itself: pip install -e .")
    ]


@pytest.mark.parametrize(
    ("requirement", "need"),
    [
        ("numpy", ""),
        ("numpy>=1.26", ""),
        ("numpy>=999", "numpy>=999"),
        ("no-such-distribution>=1", "no-such-distribution>=1"),
    ],
)
def test_distribution(requirement, need):
    check = check_distribution(requirement)
    assert (check.need, check.by) == (need, "pip")
    assert check.what == requirement.partition(">=")[0]


@pytest.mark.parametrize(
    ("version", "minimum", "old"),
    [
        ("1.26.4", "1.26", False),
        ("1.9", "1.26", True),  # numbers, not text
        ("2.0", "2", False),
        ("2", "2.0.0", False),
        ("1.26.0rc1", "1.26.1", True),
        ("2.6.0+cpu", "2.6", False),
    ],
)
def test_versions_compare_as_numbers(monkeypatch, version, minimum, old):
    monkeypatch.setattr(metadata, "version", lambda _: version)
    assert bool(check_distribution(f"thing>={minimum}").need) is old


def test_libraries():
    found = {check.what: check for check in check_libraries(NOWHERE)}
    assert found["libc.so.6"] == Check("libc.so.6", "yes")
    assert found["libnowhere.so.9"] == Check("libnowhere.so.9", "no", "libnowhere9", "apt")


def test_the_libraries_named_are_those_sumo_and_opencv_take_from_the_system():
    folders = {
        name: Path(found.submodule_search_locations[0])
        for name in ("sumo", "cv2")
        if (found := room.find_spec(name))
    }
    binaries = [folders["sumo"] / "bin" / "sumo"]
    binaries += folders["cv2"].glob("cv2*.so") if "cv2" in folders else []
    linked = {
        line.split()[0]
        for binary in binaries
        for line in subprocess.run(
            ["ldd", binary], capture_output=True, text=True, check=True
        ).stdout.splitlines()
    }
    unknown = set(LIBRARIES) - linked
    assert unknown == (set() if "cv2" in folders else {"libglib-2.0.so.0"})


def test_sumo_runs_and_says_its_version():
    check = check_sumo()
    assert not check.need
    version = metadata.version("eclipse-sumo").replace(".", "[._]")
    assert re.fullmatch(rf"Eclipse SUMO sumo v?{version}", check.found, re.IGNORECASE)


def test_sumo_is_missing():
    assert check_sumo("no_such_package") == Check("sumo", "no", "eclipse-sumo", "pip")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("#!/bin/sh\necho 'libGL.so.1: cannot open' >&2\nexit 127\n", "libGL.so.1: cannot open"),
        ("#!/bin/sh\nexit 3\n", "exit status 3"),
        ("no program", "[Errno 8] Exec format error"),
    ],
)
def test_sumo_that_does_not_start(tmp_path, monkeypatch, script, reason):
    binary = tmp_path / "broken_sumo" / "bin" / "sumo"
    binary.parent.mkdir(parents=True)
    binary.parent.with_name("__init__.py").touch()
    binary.write_text(script)
    binary.chmod(0o755)
    monkeypatch.syspath_prepend(tmp_path)
    check = check_sumo("broken_sumo")
    assert check.found.startswith(reason)
    assert check.need.startswith(f"SUMO does not start ({binary}): {reason}")


# Remedies -----------------------------------------------------------------------------


def test_one_command_per_installer(apt):
    apt()
    checks = [
        Check("a", "no", "liba1", "apt"),
        Check("b", "yes"),
        Check("c", "no", "c>=2", "pip"),
        Check("d", "no", "libd1", "apt"),
        Check("e", "3.8", "use Python 3.11 or newer"),
    ]
    assert remedies(checks) == [
        "use Python 3.11 or newer",
        "as root: apt-get update && apt-get install -y --no-install-recommends liba1 libd1",
        f"{sys.executable} -m pip install 'c>=2'",
    ]
    assert remedies(checks[1:2]) == []


def test_without_apt_the_packages_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert remedies([Check("a", "no", "liba1", "apt")]) == [
        "with your package manager (Debian's names): liba1"
    ]


# The whole ----------------------------------------------------------------------------


def test_all_is_well_with_what_is_here(capsys):
    here = {"libc.so.6": "libc6"}
    assert doctor(False, here)
    output = capsys.readouterr().out
    assert "see below" not in output
    for word in ("Python", "eclipse-sumo", "libc.so.6", "Eclipse SUMO sumo"):
        assert word in output


def test_exactly_what_is_missing_is_named_and_nothing_is_installed(capsys, apt):
    log = apt()
    assert not doctor(False, NOWHERE)
    output = capsys.readouterr().out
    assert output.count("see below") == 2
    assert f"as root: apt-get update && {INSTALL}\n" in output
    assert not log.exists()


def test_fix_installs_the_missing_ones_only(capsys, apt):
    log = apt()
    assert not doctor(True, NOWHERE)  # this apt-get installs nothing
    assert log.read_text().splitlines() == [
        "noninteractive update",
        "noninteractive " + INSTALL.removeprefix("apt-get "),
    ]
    output = capsys.readouterr().out
    assert "+ apt-get update\n" in output
    assert f"+ {INSTALL}\n" in output


def test_fix_calls_nothing_when_all_is_there(apt):
    log = apt()
    assert doctor(True, {"libc.so.6": "libc6"})
    assert not log.exists()


def test_fix_stops_when_apt_fails(capsys, apt):
    log = apt(status=100)
    assert not doctor(True, NOWHERE)
    assert log.read_text() == "noninteractive update\n"
    assert "apt-get update failed with exit status 100\n" in capsys.readouterr().out


def test_fix_without_root_only_names_the_command(capsys, apt, monkeypatch):
    log = apt()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert not doctor(True, NOWHERE)
    assert not log.exists()
    assert f"as root: apt-get update && {INSTALL}\n" in capsys.readouterr().out


def test_nothing_heavy_is_imported():
    code = (
        "import sys; from testbed.cli.doctor import doctor; doctor(False); "
        "print([m for m in ('torch', 'sumo', 'libsumo', 'numpy', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
