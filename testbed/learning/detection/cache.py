"""Pictures decoded and letterboxed once: kept in a file that all processes map into memory.

A cache entry is ``pictures-<key>.npy``, the pixels, and a JSON file beside it.  The key names
what the pixels depend on, by the size and time of each picture file, so that nothing is
decoded to find an entry.  An entry that is cut off or altered is found by its checksum and
made again.
"""

import hashlib
import json
import os
import secrets
import time
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from PIL import Image

from testbed.errors import ResultsError
from testbed.files import write_bytes
from testbed.learning.detection.letterbox import VERSION, letterbox, same_shape

Fault = Literal["unreadable", "other_shape"]

# Pictures per thread that wait to be written: bounds the memory that building takes.
_AHEAD = 4
_BLOCK = 1 << 20
_ABANDONED_S = 3600
_ADVICE = "free some space, or set execution.cache to another folder"


@dataclass(frozen=True)
class Source:
    """A picture file and the frame its boxes refer to.

    Attributes
    ----------
    path : Path
    frame : (int, int)
        Width and height.
    mark : (int, int)
        Bytes and time of change (ns) of the file.
    """

    path: Path
    frame: tuple[int, int]
    mark: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Stored:
    """What the cache has of some picture files.

    Attributes
    ----------
    pixels : uint8 array, shape (n, 3, H, W)
        Of the files without a fault, in their order; a read-only memory map.
    faults : mapping of int to str
        Place of each other file, and why it cannot be used.
    digest : str
        SHA-256 of names and contents of the files without a fault.
    """

    pixels: NDArray[np.uint8]
    faults: Mapping[int, Fault]
    digest: str


def stored(sources: Sequence[Source], size: tuple[int, int], folder: Path) -> Stored:
    """Return the pictures' pixels from the cache `folder`, where they are put if need be.

    Parameters
    ----------
    sources : sequence of Source
    size : (int, int)
        Height and width of the letterbox.
    folder : Path
        Made if it is not there.  Several processes may build the same entry at once.

    Raises
    ------
    ResultsError
        If the cache cannot be written.
    """
    target = folder / f"pictures-{_key(sources, size)}.npy"
    return _read(target, sources, size) or _build(target, sources, size)


def _key(sources: Sequence[Source], size: tuple[int, int]) -> str:
    # Another version of either library may decode or scale to other values.
    versions = f"{VERSION} {PIL.__version__} {torch.__version__}"
    digest = hashlib.sha256(f"{versions} {size}\0".encode())
    for source in sources:
        digest.update(f"{source.path}\0{source.frame} {source.mark}\0".encode())
    return digest.hexdigest()[:24]


def _read(target: Path, sources: Sequence[Source], size: tuple[int, int]) -> Stored | None:
    """Return an entry; None if there is none or it is not as it was written."""
    try:
        index = json.loads(target.with_suffix(".json").read_bytes())
        faults = {int(place): fault for place, fault in index["faults"].items()}
        if index["check"] != _check(target, faults, index["digest"]):
            return None
        pixels = np.load(target, mmap_mode="r")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if pixels.shape != (len(sources) - len(faults), 3, *size):
        return None
    # Access to a file may have been mended, of which its mark says nothing.
    if not all(isinstance(_decode(sources[place], size), str) for place in faults):
        return None
    return Stored(np.asarray(pixels), faults, index["digest"])


def _check(target: Path, faults: Mapping[int, Fault], digest: str) -> int:
    """Return the checksum of an entry: its file of pixels and the rest."""
    check = zlib.crc32(f"{sorted(faults.items())} {digest}".encode())
    with target.open("rb") as stream:
        while block := stream.read(_BLOCK):
            check = zlib.crc32(block, check)
    return check


def _build(target: Path, sources: Sequence[Source], size: tuple[int, int]) -> Stored:
    """Decode the pictures a few at a time, straight into the file."""
    faults: dict[int, Fault] = {}
    contents = hashlib.sha256()
    with _replacing(target) as stream:
        _write_header(stream, (len(sources), 3, *size))
        for place, made in enumerate(_decoded(sources, size)):
            if isinstance(made, str):
                faults[place] = made
                continue
            content, pixels = made
            contents.update(sources[place].path.name.encode() + b"\0" + content)
            stream.write(pixels.data)
        stream.seek(0)
        _write_header(stream, (len(sources) - len(faults), 3, *size))
    digest = contents.hexdigest()
    index = {"faults": faults, "digest": digest, "check": _check(target, faults, digest)}
    write_bytes(target.with_suffix(".json"), json.dumps(index).encode(), _ADVICE)
    return Stored(np.asarray(np.load(target, mmap_mode="r")), faults, digest)


def _write_header(stream: BinaryIO, shape: tuple[int, ...]) -> None:
    # NumPy leaves room in the header for a larger first axis, so its length never changes.
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "|u1", "fortran_order": False, "shape": shape}
    )


# The hash of a file's content and its pixels, or why it cannot be used.
_Decoded = tuple[bytes, NDArray[np.uint8]] | Fault


def _decoded(sources: Sequence[Source], size: tuple[int, int]) -> Iterator[_Decoded]:
    """Yield what each file gives, in order."""
    threads = os.cpu_count() or 1
    waiting: deque[Future[_Decoded]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for source in sources:
            waiting.append(pool.submit(_decode, source, size))
            if len(waiting) == threads * _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _decode(source: Source, size: tuple[int, int]) -> _Decoded:
    try:
        content = source.path.read_bytes()
        with Image.open(BytesIO(content), formats=("JPEG", "PNG")) as picture:
            if not same_shape(picture.size, source.frame):
                return "other_shape"
            pixels = np.array(picture.convert("RGB"))
    except Exception:  # Pillow's decoders raise many
        return "unreadable"
    return hashlib.sha256(content).digest(), letterbox(pixels, source.frame, size)


@contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    """Yield a new file that takes the place of `target` when the block succeeds."""
    prefix = f".{target.name}.partial-"
    new = target.with_name(f"{prefix}{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target.parent, prefix)
        with new.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(target)
    except OSError as error:
        raise ResultsError(
            f"cannot keep decoded pictures in {target.parent}: {error.strerror}; {_ADVICE}"
        ) from error
    finally:
        with suppress(OSError):
            new.unlink()


def _sweep(folder: Path, prefix: str) -> None:
    """Remove what killed processes left; a file still being written is young."""
    for left in folder.glob(f"{prefix}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_S:
                left.unlink()
