"""``testbed data partition`` says what the run itself would do."""

import numpy as np

from testbed.config import load
from testbed.learning.client import prepare


def cells(lines, label):
    (line,) = [line for line in lines if label in line]
    return [float(cell) for cell in line.strip("│ ").split("│")[1:]]


def test_the_summary_is_that_of_the_run(call, place):
    code, out, err = call("data", "partition", "tiny.yaml", "--seed", 3)
    assert (code, err) == (0, [])
    task = prepare(load(place / "tiny.yaml", []), 3)
    train = np.array([len(part) for part in task.parts])
    held = np.array([len(part) for part in task.holdouts])
    assert out[0] == "digits, partition dirichlet, alpha 0.5, seed 3"
    assert "6 clients" in out[2]
    assert cells(out, " samples ") == np.quantile(train + held, [0, 0.5, 1]).tolist()
    assert cells(out, " held out of them ") == np.quantile(held, [0, 0.5, 1]).tolist()


def test_the_seed_is_the_first_of_the_file_and_settings_win(call):
    _, out, _ = call("data", "partition", "--set", "seeds=5,6", "--set", "data.partition=iid")
    assert out[0] == "digits, partition iid, seed 5"
    _, out, _ = call("data", "partition", "--set", "data.partition=shards", "--seed", "0")
    assert out[0] == "digits, partition shards, 2 a client, seed 0"
    assert cells(out, "classes of nine tenths")[2] <= 4  # a shard may reach into a second class


def test_the_picture_is_written(call, place):
    code, out, _ = call("data", "partition", "tiny.yaml", "--out", "who.pdf")
    assert (code, out[-1]) == (0, "figure: who.pdf")
    assert (place / "who.pdf").read_bytes().startswith(b"%PDF")


def test_mistakes_are_one_line_and_leave_no_picture(call, place):
    for arguments, words in (
        (["--out", "who.jpg"], "--out who.jpg: call it *.png or *.pdf"),
        (["--set", "clients.pool=5000", "--out", "who.png"], "cannot give 5000 clients"),
        (["--set", "data.partition=writers", "--out", "who.png"], "says who wrote each picture"),
        (["--out", "tiny.yaml/who.png"], "choose another --out"),
    ):
        code, _, err = call("data", "partition", "tiny.yaml", *arguments)
        assert (code, len(err)) == (2, 1)
        assert words in err[0]
    assert not list(place.glob("who*"))
