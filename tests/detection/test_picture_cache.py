"""The cache of decoded pictures: found again, shared, healed, built by several at once."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from drawn import make

from testbed.errors import ResultsError
from testbed.learning.detection.cache import Source, stored

SIZE = (64, 96)


def sources(folder: Path) -> list[Source]:
    found = []
    for path in sorted(folder.iterdir()):
        state = path.stat()
        found.append(Source(path, (1280, 720), (state.st_size, state.st_mtime_ns)))
    return found


@pytest.fixture
def images(tmp_path):
    return make(tmp_path / "drawn")[0]


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def names(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir())


def break_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def test_an_entry_is_one_row_a_picture_and_a_note_beside_it(images, cache):
    made = stored(sources(images), SIZE, cache)
    assert made.pixels.shape == (8, 3, 64, 96)
    assert made.pixels.dtype == np.uint8
    assert made.faults == {}
    first, second = names(cache)
    assert (first[-5:], second[-4:]) == (".json", ".npy")
    assert first[:-5] == second[:-4]
    assert (np.load(cache / second) == made.pixels).all()


def test_the_second_time_nothing_is_decoded(images, cache):
    made = stored(sources(images), SIZE, cache)
    for source in sources(images):
        size, changed = source.mark
        source.path.write_bytes(bytes(size))  # no picture any more, and looks the same
        os.utime(source.path, ns=(changed, changed))
    again = stored(sources(images), SIZE, cache)
    assert (again.pixels == made.pixels).all()
    assert again.digest == made.digest
    assert len(names(cache)) == 2


def test_pixels_are_a_read_only_map_of_the_file(images, cache):
    made = stored(sources(images), SIZE, cache)
    for entry in (made, stored(sources(images), SIZE, cache)):
        assert isinstance(entry.pixels.base, np.memmap)
        assert not entry.pixels.flags.writeable
        assert entry.pixels.flags.c_contiguous
    if sys.platform == "linux":
        assert str(next(cache.glob("*.npy"))) in Path("/proc/self/maps").read_text()


def test_faults_leave_no_gap(images, cache):
    whole = stored(sources(images), SIZE, cache)
    break_file(images / "train_002.jpg")
    (images / "train_005.jpg").write_bytes(b"")
    for _ in range(2):  # built, then read
        made = stored(sources(images), SIZE, cache)
        assert made.faults == {2: "unreadable", 5: "unreadable"}
        assert (made.pixels == whole.pixels[[0, 1, 3, 4, 6, 7]]).all()
        assert made.digest != whole.digest
    assert len(names(cache)) == 4


def test_a_file_that_could_not_be_read_is_tried_again(images, cache):
    whole = stored(sources(images), SIZE, cache)
    path = images / "train_003.jpg"
    content, changed = path.read_bytes(), path.stat().st_mtime_ns
    for found in cache.iterdir():
        found.unlink()
    for now, faults in ((bytes(len(content)), {3: "unreadable"}), (content, {})):
        path.write_bytes(now)
        os.utime(path, ns=(changed, changed))  # as after a change of permissions
        made = stored(sources(images), SIZE, cache)
        assert made.faults == faults
    assert (made.pixels == whole.pixels).all()
    assert len(names(cache)) == 2


def test_all_may_be_faulty(images, cache):
    for path in images.iterdir():
        break_file(path)
    for _ in range(2):
        made = stored(sources(images), SIZE, cache)
        assert len(made.faults) == 8
        assert made.pixels.shape == (0, 3, *SIZE)


def test_what_pixels_depend_on_makes_another_entry(images, cache):
    made = stored(sources(images), SIZE, cache)
    stored(sources(images), (64, 64), cache)
    assert len(names(cache)) == 4
    touched = images / "train_000.jpg"
    os.utime(touched, ns=(1, 1))
    again = stored(sources(images), SIZE, cache)
    assert len(names(cache)) == 6
    assert again.digest == made.digest  # of contents, not of times
    touched.write_bytes((images / "train_001.jpg").read_bytes())
    changed = stored(sources(images), SIZE, cache)
    assert changed.digest != made.digest
    assert (changed.pixels[0] == made.pixels[1]).all()
    (images / "train_007.jpg").rename(images / "train_999.jpg")
    assert stored(sources(images), SIZE, cache).digest != changed.digest


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def cut_to_nothing(path: Path) -> None:
    os.truncate(path, 0)


def lengthen(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"\0")


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def other_header(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"(8, 3, 64, 96)", b"(8, 3, 96, 64)"))


def forget(path: Path) -> None:
    path.unlink()


def rewrite(path: Path, **changed: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def other_digest(path: Path) -> None:
    rewrite(path, digest="0" * 64)


def other_faults(path: Path) -> None:
    rewrite(path, faults={"3": "unreadable"})


def no_mapping(path: Path) -> None:
    path.write_text("[]")


def odd_faults(path: Path) -> None:
    rewrite(path, faults=["3"])


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        *(("npy", each) for each in (cut, cut_to_nothing, lengthen, flip_a_bit, other_header)),
        *((suffix, forget) for suffix in ("npy", "json")),
        *(("json", each) for each in (cut, cut_to_nothing, no_mapping, odd_faults)),
        *(("json", each) for each in (other_digest, other_faults)),
    ],
)
def test_a_damaged_entry_is_found_and_made_again(images, cache, suffix, damage):
    made = stored(sources(images), SIZE, cache)
    expected, before = (
        made.pixels.copy(),
        {path.name: path.read_bytes() for path in cache.iterdir()},
    )
    del made  # its map must not see the damage
    damage(next(cache.glob(f"*.{suffix}")))
    again = stored(sources(images), SIZE, cache)
    assert (again.pixels == expected).all()
    assert again.faults == {}
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == before


def test_leftovers_of_killed_processes_are_swept(images, cache):
    stored(sources(images), SIZE, cache)
    target = next(cache.glob("*.npy"))
    old, young, other = (
        cache / name
        for name in (
            f".{target.name}.partial-00000000",
            f".{target.name}.partial-11111111",
            ".another.npy.partial-00000000",
        )
    )
    for path in (old, young, other):
        path.write_bytes(b"half")
    for path in (old, other):
        os.utime(path, (1, 1))
    target.unlink()
    stored(sources(images), SIZE, cache)
    assert not old.exists()
    assert young.exists()  # perhaps still being written
    assert other.exists()


def test_a_full_disk_is_told_and_leaves_nothing(images, cache):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(ResultsError) as caught:
            stored(sources(images), SIZE, cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(caught.value) == (
        f"cannot keep decoded pictures in {cache}: File too large; free some space, or set "
        "execution.cache to another folder"
    )
    assert names(cache) == []


def test_a_cache_that_cannot_be_a_folder_is_told(images, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ResultsError, match=r"cannot keep decoded pictures in .*file"):
        stored(sources(images), SIZE, tmp_path / "file")


BUILDER = """
import resource, sys
from pathlib import Path
sys.path[:0] = {here!r}
from test_picture_cache import sources
from testbed.learning.detection.cache import stored
few, many = (sources(Path({images!r}))[:n] for n in (40, 400))
print("ready", flush=True)
sys.stdin.readline()
for some in (few, many, many):
    made = stored(some, (320, 320), Path({cache!r}))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(made.pixels.nbytes // 1024, most, made.digest, made.pixels[::50].sum())
"""


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """Have two processes build the same entries at once; yield the cache and what they say."""
    folder = tmp_path_factory.mktemp("twins")
    images, cache = make(folder)[0], folder / "cache"
    drawn = sorted(images.iterdir())
    for number in range(392):
        (images / f"more_{number:03d}.jpg").hardlink_to(drawn[number % 8])
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    script = BUILDER.format(here=here, images=str(images), cache=str(cache))
    pipe = subprocess.PIPE
    both = [
        subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, text=True)
        for _ in range(2)
    ]
    for each in both:
        assert each.stdout.readline() == "ready\n"
    for each in both:
        each.stdin.write("go\n")
        each.stdin.flush()
    return cache, [[line.split() for line in each.communicate()[0].splitlines()] for each in both]


def test_two_processes_build_the_same_entries_at_once(twins):
    cache, (one, other) = twins
    assert len(names(cache)) == 4
    assert [line[0] for line in one] == ["12000", "120000", "120000"]  # 300 KiB a picture
    assert one[1][2:] == one[2][2:]  # built, then read
    assert [line[2:] for line in one] == [line[2:] for line in other]


def test_building_and_reading_take_no_memory_by_the_picture(twins):
    for (_, few, *_), _, (size, many, *_) in twins[1]:
        assert int(many) - int(few) < int(size) / 4
