"""``testbed data``: every data set is listed, the user's files are checked and shown."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import get_args

import matplotlib.image
import numpy as np
import pytest
from typer.testing import CliRunner

from testbed.cli.data import app
from testbed.config.schema import DataConfig
from testbed.data.sources import DEBIAN_FASHION


@pytest.fixture
def listed(monkeypatch, tmp_path):
    monkeypatch.setattr("testbed.data.sources.DEBIAN_FASHION", tmp_path / "none")
    result = CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def bundle(tmp_path):
    """Nine grey and coloured squares of the classes a, b and c, by two writers."""
    x = np.zeros((9, 6, 6, 3), np.uint8)
    x[:, :, :, 0] = np.arange(9)[:, None, None] * 25
    path = tmp_path / "some.npz"
    np.savez(
        path,
        x_train=x,
        y_train=np.array([0, 0, 0, 0, 1, 1, 1, 2, 2]),
        x_test=x[:4] + 5,
        y_test=np.array([0, 1, 1, 2]),
        writer_train=np.array([0, 0, 0, 0, 0, 0, 1, 1, 1]),
        class_names=np.array(["a", "$b$", "c"]),
    )
    return path


def row(output: str, name: str) -> list[str]:
    lines = [line for line in output.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    (found,) = [line for line in cells if line[0] == name]
    return found


def fact(lines: list[str], name: str) -> str:
    (line,) = [line for line in lines if line.startswith(f"{name}  ")]
    return line.removeprefix(name).strip()


# list ---------------------------------------------------------------------------------


def test_every_name_the_configuration_knows_has_a_row(listed):
    for name in get_args(DataConfig.model_fields["name"].annotation):
        assert row(listed, name)[0] == name


def test_digits_are_always_found(listed):
    assert row(listed, "digits") == [
        "digits", "yes", "1438 + 359", "1x8x8", "package scikit-learn"
    ]  # fmt: skip


def test_what_is_missing_is_said_and_how_to_get_it(listed, tmp_path):
    assert row(listed, "mnist") == ["mnist", "no", "", "", "what data.path names"]
    assert row(listed, "fashion-mnist")[1::3] == ["no", str(tmp_path / "none")]
    lines = listed.splitlines()
    for name in ("mnist", "cifar10", "svhn", "femnist", "npz", "folder"):
        start = f"{name}: it does not come with the testbed; set data.path to a"
        assert any(line.startswith(start) for line in lines)
    assert any("apt-get install dataset-fashion-mnist" in line for line in lines)


# check --------------------------------------------------------------------------------


def test_what_is_found_is_counted(call, bundle):
    code, out, err = call("data", "check", bundle)
    assert (code, err) == (0, [])
    assert fact(out, "recognised as") == f".npz bundle, {bundle}"
    assert fact(out, "data.name") == "npz"
    assert fact(out, "train + test") == "9 + 4"
    assert fact(out, "shape") == "3x6x6"
    assert fact(out, "writers") == "2, with 3 to 6 training pictures, median 4.5"
    assert len(fact(out, "fingerprint")) == 16
    assert fact(out, "of its parts").startswith("train ")
    table = "\n".join(out)
    assert row(table, "a") == ["a", "4", "1"]
    assert row(table, "$b$") == ["$b$", "3", "2"]
    assert out[-1] == "nothing wrong"


def test_oddities_are_noted(call, bundle):
    with np.load(bundle) as given:
        arrays = dict(given)
    arrays["x_test"] = arrays["x_train"][:4]
    arrays["y_test"] = np.array([0, 1, 1, 1])
    np.savez(bundle, **arrays)
    code, out, _ = call("data", "check", bundle)
    assert code == 0
    assert out[-2:] == [
        "note: no pictures to test on of class c",
        "note: 4 test pictures are also among those to learn from",
    ]


def test_every_fault_is_a_line_and_the_code_is_2(call, tmp_path):
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        batch = {"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1]}
        (tmp_path / name).write_bytes(pickle.dumps(batch, 2))
    assert call("data", "check", tmp_path)[0] == 0
    (tmp_path / "data_batch_2").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    (tmp_path / "data_batch_4").write_bytes(b"\x80\x02}")
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch | {"labels": [0, 10]}, 2))
    code, out, err = call("data", "check", tmp_path)
    assert (code, out, len(err)) == (2, [], 3)
    assert err[0].startswith(
        f"error: {tmp_path}/data_batch_2: refused, the pickle asks for os.sys"
    )
    assert err[1].startswith(f"error: {tmp_path}/data_batch_4: truncated pickle")
    assert err[2] == (f"error: {tmp_path}/test_batch: labels: label 10 of sample 1 is not in 0..9")


def test_faults_of_the_call_itself(call, bundle, tmp_path):
    for arguments, line in (
        ([tmp_path / "none"], f"error: there is no {tmp_path / 'none'}"),
        ([bundle, "--name", "imagenet"], "error: --name imagenet: not a data set in files; use"),
        ([bundle, "--name", "digits"], "error: --name digits: not a data set in files; use"),
        ([bundle, "--name", "folder"], f"error: {bundle}: holds .npz bundle, not folder"),
        ([bundle, "--test-share", "2"], "error: data.test_share: 2.0 must be less than 1"),
    ):
        code, out, err = call("data", "check", *arguments)
        assert (code, out, len(err)) == (2, [], 1)
        assert err[0].startswith(line)


def test_a_name_brings_its_expectations(call, bundle):
    code, _, err = call("data", "check", bundle, "--name", "cifar10")
    assert code == 2
    assert [line.split(": ")[2] for line in err] == ["x_train", "x_test"]


@pytest.mark.skipif(not DEBIAN_FASHION.is_dir(), reason="dataset-fashion-mnist is not installed")
def test_fashion_is_told_from_digits_by_its_content(call):
    code, out, _ = call("data", "check", DEBIAN_FASHION)
    assert code == 0
    assert fact(out, "data.name") == "fashion-mnist"
    assert fact(out, "fingerprint").endswith(", that of the official files")
    assert row("\n".join(out), "ankle boot") == ["ankle boot", "6000", "1000"]


# show ---------------------------------------------------------------------------------


def test_the_contact_sheet(call, bundle, place):
    code, out, err = call("data", "show", bundle, "--columns", "3")
    assert (code, out, err) == (0, ["sheet.png"], [])
    picture = matplotlib.image.imread(place / "sheet.png")[..., :3]
    reds = {
        round(float(red) * 255)
        for red, green, blue in np.unique(picture.reshape(-1, 3), axis=0)
        if green == blue == 0 and red > 0
    }
    # Three of the four pictures of a, all of the other classes: 25 is a step of red.
    assert reds >= {100, 125, 150, 175, 200}
    assert len(reds & {0, 25, 50, 75}) in (2, 3)


def test_the_sheet_is_written_where_asked_or_not_at_all(call, bundle, place):
    assert call("data", "show", bundle, "--out", "new/a.png")[:2] == (0, ["new/a.png"])
    assert (place / "new" / "a.png").is_file()
    code, _, err = call("data", "show", bundle, "--out", "a.jpg")
    assert (code, err) == (2, ["error: --out a.jpg: call it *.png"])
    bundle.write_bytes(b"PK broken")
    code, _, err = call("data", "show", bundle)
    assert code == 2
    assert err[0].startswith(f"error: {bundle}: not a readable .npz bundle")
    assert not (place / "sheet.png").exists()


def test_the_module_is_cheap_to_import():
    code = (
        "import sys, testbed.cli.data; "
        "print([m for m in ('numpy', 'sklearn', 'torch', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_relative_path_is_of_the_working_folder(call, bundle, place):
    assert call("data", "check", Path(bundle).relative_to(place))[0] == 0
