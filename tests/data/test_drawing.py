"""Which pictures are used: limits by class, a share of the writers, nested and repeatable."""

import numpy as np
import pytest
from data_files import load, random_bytes, refusal, write_idx
from hypothesis import given
from hypothesis import strategies as st

from testbed.data.drawing import _shares


@pytest.fixture
def bundle(tmp_path):
    """Thirty pictures of three classes, 15 + 10 + 5, by writers 0 to 9, three each."""
    labels = np.repeat([0, 1, 2], [15, 10, 5])
    path = tmp_path / "b.npz"
    np.savez(
        path,
        x_train=random_bytes(30, 4, 4),
        y_train=labels,
        x_test=random_bytes(30, 4, 4, seed=1),
        y_test=labels,
        writer_train=np.arange(30) % 10,
        writer_test=np.arange(30) % 15,  # 10 to 14 are only tested on
    )
    return path


def rows(x: np.ndarray) -> list[bytes]:
    return [picture.tobytes() for picture in x]


# Limits -------------------------------------------------------------------------------


def test_a_limit_keeps_the_shares_of_the_classes(bundle):
    data = load("npz", bundle, limit=6, test_limit=12)
    assert np.bincount(data.y_train).tolist() == [3, 2, 1]
    assert np.bincount(data.y_test).tolist() == [6, 4, 2]


def test_what_is_drawn_keeps_its_order_labels_and_writers(bundle):
    whole, part = load("npz", bundle), load("npz", bundle, limit=9)
    places = [rows(whole.x_train).index(row) for row in rows(part.x_train)]
    assert places == sorted(set(places))
    assert part.y_train.tolist() == whole.y_train[places].tolist()
    names = [whole.writers[writer] for writer in whole.writers_train[places]]
    assert [part.writers[writer] for writer in part.writers_train] == names
    assert np.unique(part.writers_train).tolist() == list(range(len(part.writers)))


def test_draws_repeat_and_nest(bundle):
    small, same, large = (set(rows(load("npz", bundle, limit=n).x_train)) for n in (6, 6, 12))
    assert small == same
    assert small < large
    # The two parts are drawn apart.
    a = load("npz", bundle, limit=6)
    b = load("npz", bundle, limit=6, test_limit=6)
    assert rows(a.x_train) == rows(b.x_train)
    assert len(b.y_test) == 6


def test_all_is_no_draw(bundle):
    assert (
        load("npz", bundle, limit=30, test_limit=30).fingerprint == load("npz", bundle).fingerprint
    )


@pytest.mark.parametrize("key", ["limit", "test_limit"])
def test_more_than_there_is_and_less_than_the_classes(bundle, key):
    assert refusal("npz", bundle, **{key: 31}) == (
        f"data.{key} is 31 but {bundle} has only 30 pictures to draw; lower it, or leave it out "
        "to use them all"
    )
    assert refusal("npz", bundle, **{key: 2}) == (
        f"data.{key} is 2, too few for one picture of each of the 3 classes of {bundle}; raise it "
        "to 3 or more"
    )


def test_limits_of_idx_files_and_digits(tmp_path):
    write_idx(tmp_path)
    data = load("mnist", tmp_path, limit=10, test_limit=10)
    assert np.bincount(data.y_train).tolist() == [1] * 10
    assert data.x_train.shape == (10, 1, 28, 28)
    digits = load("digits", None, limit=100, test_limit=20)
    assert (len(digits.y_train), len(digits.y_test)) == (100, 20)
    whole = set(rows(load("digits", None).x_test))
    assert set(rows(digits.x_test)) < whole


@given(st.lists(st.integers(0, 200), min_size=1, max_size=12), st.data())
def test_shares_add_up_and_fit(available, data):
    sizes = np.array(available)
    present = int((sizes > 0).sum())
    if not present:
        return
    limit = data.draw(st.integers(present, int(sizes.sum())))
    shares = _shares(sizes, limit)
    assert shares.sum() == limit
    assert ((shares <= sizes) & (shares >= (sizes > 0))).all()
    # Nobody is further than one from its exact share, but for the one it always has.
    exact = sizes * limit / sizes.sum()
    assert (shares - exact < 1 + 1e-9).all()


# Writers ------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "count"), [(0.01, 1), (0.3, 3), (0.5, 5), (0.99, 10), (1, 10)])
def test_a_share_of_the_writers_with_all_their_pictures(bundle, share, count):
    whole, data = load("npz", bundle), load("npz", bundle, users=share)
    assert len(data.writers) == count
    assert np.bincount(data.writers_train).tolist() == [3] * count
    names = set(data.writers)
    kept = [whole.writers[writer] in names for writer in whole.writers_train]
    assert rows(data.x_train) == rows(whole.x_train[kept])
    # Names keep the order of the files.
    assert sorted(data.writers, key=int) == list(data.writers)


def test_the_test_part_is_that_of_the_drawn_writers(bundle):
    whole, data = load("npz", bundle), load("npz", bundle, users=0.4)
    test_writers = np.arange(30) % 15
    tested = {test_writers[rows(whole.x_test).index(row)] for row in rows(data.x_test)}
    # Four of the ten who learn, two of the five who are only tested on.
    assert {int(name) for name in data.writers} == {w for w in tested if w < 10}
    assert len({w for w in tested if w >= 10}) == 2
    assert len(data.y_test) == 2 * 6


def test_shares_of_writers_nest(bundle):
    few, more = (set(load("npz", bundle, users=share).writers) for share in (0.2, 0.6))
    assert few < more


def test_no_writers_to_draw(tmp_path):
    write_idx(tmp_path)
    assert refusal("mnist", tmp_path, users=0.5) == (
        f"data.users is 0.5 but {tmp_path} does not say who wrote what; leave it out"
    )


def test_writers_without_test_pictures(tmp_path):
    path = tmp_path / "b.npz"
    writers = np.arange(30)
    np.savez(
        path, x_train=random_bytes(30, 4, 4), y_train=np.zeros(30, int),
        x_test=random_bytes(1, 4, 4), y_test=np.zeros(1, int),
        writer_train=writers, writer_test=writers[:1],
    )  # fmt: skip
    assert refusal("npz", path, users=0.1) == (
        f"data.users is 0.1 but the writers it draws from {path} have no test pictures; raise it"
    )
