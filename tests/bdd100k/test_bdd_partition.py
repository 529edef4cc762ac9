"""Partitions: everybody once, the shares one asked for, the same for the same seed."""

import random
from collections import Counter
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bdd100k_tools import CLASSES, Box, Frame, PartitionError, read
from bdd100k_tools.partition import Entry, describe, entry, partition

WEATHER = ("clear", "foggy", "rainy", "snowy")


def entries(count, seed=0):
    draw = random.Random(seed)
    made = []
    for number in range(count):
        counts = [0] * len(CLASSES)
        for _ in range(draw.randint(0, 5)):
            counts[draw.choice((0, 2, 2, 2, 8, 9))] += 1
        attributes = {"weather": draw.choice(WEATHER[:3] + WEATHER), "timeofday": "night"}
        made.append(Entry(f"{number:04d}.jpg", attributes, tuple(counts)))
    return made


def flat(parts):
    return sorted(name for part in parts for name in part)


def test_an_entry_counts_what_can_be_trained_on():
    boxes = (
        Box("car", 0, 0, 1, 1, False),
        Box("car", 0, 0, 1, 1, True),
        Box("bus", 0, 0, 1, 1, False),
    )
    one = entry(Frame("a.jpg", MappingProxyType({"weather": "rainy"}), boxes))
    assert one == Entry("a.jpg", {"weather": "rainy"}, (0, 0, 1, 0, 1, 0, 0, 0, 0, 0))


@given(
    st.integers(40, 80),
    st.integers(1, 8),
    st.sampled_from(
        [("iid", None), ("weather", None), ("scene", None), ("weather", 5.0), ("class", 5.0)]
    ),
    st.integers(0, 5),
)
def test_every_picture_once_and_independent_of_the_order(count, clients, how, seed):
    by, alpha = how
    pictures = entries(count, seed)
    parts = partition(pictures, clients, by, alpha=alpha, seed=seed)
    assert len(parts) == clients
    assert flat(parts) == [one.name for one in pictures]
    assert all(parts)
    assert all(list(part) == sorted(part) for part in parts)
    random.Random(seed).shuffle(pictures)
    assert partition(pictures, clients, by, alpha=alpha, seed=seed) == parts


def test_iid_shares_are_equal_and_differ_by_seed():
    pictures = entries(103)
    parts = partition(pictures, 10, seed=1)
    assert sorted(map(len, parts)) == [10] * 7 + [11] * 3
    assert partition(pictures, 10, seed=2) != parts


def test_a_partition_stays_what_it_was():
    names = [Entry(f"{k}.jpg", {"weather": "clear"}, (1,) * 10) for k in range(8)]
    assert partition(names, 2, seed=0) == (
        ("0.jpg", "3.jpg", "4.jpg", "6.jpg"),
        ("1.jpg", "2.jpg", "5.jpg", "7.jpg"),
    )
    assert tuple(map(len, partition(names, 3, "weather", alpha=1.0, seed=0))) == (3, 3, 2)


def test_another_picture_leaves_the_order_of_the_others():
    pictures = entries(60)
    (before,) = partition(pictures, 1)
    assert list(before) == [one.name for one in pictures]
    # Dealt out one by one in a fixed order, a picture that joins last in it moves nobody.
    old = partition(pictures[:-1], 59)
    new = partition(pictures, 60)
    sequence = [part[0] for part in new]
    assert [name for name in sequence if name != pictures[-1].name] == [part[0] for part in old]


def test_a_client_drives_under_one_weather():
    pictures = entries(200)
    weather = {one.name: one.attributes["weather"] for one in pictures}
    parts = partition(pictures, 12, "weather")
    assert all(len({weather[name] for name in part}) == 1 for part in parts)
    values = [weather[part[0]] for part in parts]
    assert values == sorted(values)
    # The more pictures, the more clients, so that shares are about equal.
    total = Counter(weather.values())
    shares = {value: total[value] / values.count(value) for value in total}
    assert set(values) == set(WEATHER)
    assert max(shares.values()) < 2 * min(shares.values())


def test_fewer_clients_than_weathers_take_several():
    pictures = entries(200)
    weather = {one.name: one.attributes["weather"] for one in pictures}
    parts = partition(pictures, 2, "weather")
    sets = [{weather[name] for name in part} for part in parts]
    assert sets[0] | sets[1] == set(WEATHER)
    assert not sets[0] & sets[1]


def test_an_attribute_that_is_missing_is_undefined():
    pictures = [Entry("a.jpg", {}, (0,) * 10), Entry("b.jpg", {"scene": "tunnel"}, (0,) * 10)]
    assert partition(pictures, 2, "scene") == (("b.jpg",), ("a.jpg",))  # tunnel, undefined
    rows = describe(pictures, (("b.jpg",), ("a.jpg",)))
    assert [row["scene"] for row in rows] == [{"tunnel": 1}, {"undefined": 1}]


def test_alpha_makes_it_uneven():
    pictures = entries(2000)
    weather = {one.name: one.attributes["weather"] for one in pictures}

    def spread(alpha):
        parts = partition(pictures, 5, "weather", alpha=alpha, minimum=0)
        clear = [sum(weather[name] == "clear" for name in part) for part in parts]
        return max(clear) / sum(clear)

    assert spread(1e4) < 0.23  # near a fifth
    assert spread(0.05) > 0.5


def test_the_class_of_a_picture_is_its_rarest():
    car, sign, bus = 2, 9, 4

    def one(name, *there):
        return Entry(name, {}, tuple(int(k in there) for k in range(10)))

    pictures = [one(f"c{k}.jpg", car) for k in range(50)]
    pictures += [one(f"s{k}.jpg", car, sign) for k in range(30)]
    pictures += [one(f"b{k}.jpg", car, sign, bus) for k in range(20)]
    pictures += [one(f"n{k}.jpg") for k in range(10)]
    parts = partition(pictures, 3, "class", alpha=1e-6, minimum=0)
    # So uneven that every group goes to one client as a whole.
    homes = {letter: [sum(n[0] == letter for n in part) for part in parts] for letter in "csbn"}
    assert [max(homes[letter]) for letter in "csbn"] == [50, 30, 20, 10]


def test_a_draw_is_repeated_until_nobody_is_empty():
    pictures = entries(60)
    parts = partition(pictures, 6, "weather", alpha=0.3, minimum=4)
    assert min(map(len, parts)) >= 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"clients": 0}, "clients must be 1 or more"),
        ({"clients": 2, "minimum": -1}, "min 0 or more"),
        ({"clients": 61}, "60 pictures cannot give 61 clients 1 each"),
        ({"clients": 7, "minimum": 10}, "60 pictures cannot give 7 clients 10 each"),
        ({"clients": 2, "by": "class"}, "by class needs an alpha"),
        ({"clients": 2, "alpha": 1.0}, "by iid takes no alpha"),
        ({"clients": 2, "by": "weather", "alpha": 0.0}, "alpha must be a finite number above 0"),
        ({"clients": 2, "by": "weather", "alpha": float("nan")}, "alpha must be a finite"),
        ({"clients": 6, "by": "weather", "alpha": 1e-3, "minimum": 9}, "fewer than --min 9"),
        ({"clients": 6, "by": "weather", "minimum": 10}, "a client would get"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(PartitionError, match=message):
        partition(entries(60), **arguments)


def test_description():
    pictures = entries(30)
    parts = partition(pictures, 4)
    rows = describe(pictures, parts)
    assert [row["client"] for row in rows] == [f"client_{k:03d}" for k in range(4)]
    assert sum(row["pictures"] for row in rows) == 30
    assert sum(row["boxes"] for row in rows) == sum(sum(one.counts) for one in pictures)
    for name in CLASSES:
        k = CLASSES.index(name)
        assert sum(row["classes"][name] for row in rows) == sum(one.counts[k] for one in pictures)


def test_the_real_pictures(real):
    pictures = [entry(one) for one in read(real / "bdd100k_labels_train.json")]
    night = {one.name for one in pictures if one.attributes["timeofday"] == "night"}
    assert len(night) == 395
    parts = partition(pictures, 20, "timeofday", seed=3)
    dark = [part for part in parts if set(part) <= night]
    assert sum(map(len, dark)) == 395
    assert all(set(part) <= night or not set(part) & night for part in parts)
