"""Which data set a folder or a file holds."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.data import bundle, cifar, folder, idx, leaf, svhn
from testbed.data.kinds import KINDS, Kind
from testbed.data.raw import Raw
from testbed.errors import DataError


@dataclass(frozen=True)
class Format:
    """A way in which data sets are published.

    Attributes
    ----------
    title : str
    holds : str
        What a folder of it holds, for messages.
    names : tuple of str
        The data sets that come in it; the first if nobody says which.
    find : callable
        From a folder to what `read` takes, or None if the folder is of another format.
    read : callable
    """

    title: str
    holds: str
    names: tuple[str, ...]
    find: Callable[[Path], Path | None]
    read: Callable[[Path, Kind], Raw]


@dataclass(frozen=True)
class Found:
    """What was recognised: the format, where, and which data set it is taken for."""

    format: Format
    path: Path
    name: str

    def read(self) -> Raw:
        """Read it.

        Raises
        ------
        DataError
            If something is missing or broken.
        """
        with _readable(self.path):
            return self.format.read(self.path, KINDS[self.name])


_IDX = Format("idx files", idx.HOLDS, ("mnist", "fashion-mnist"), idx.find, idx.read)
_FORMATS = (
    _IDX,
    Format(
        "CIFAR-10 batches of Python",
        cifar.HOLDS,
        ("cifar10",),
        cifar.find_python,
        cifar.read_python,
    ),
    Format(
        "CIFAR-10 binary batches", cifar.HOLDS, ("cifar10",), cifar.find_binary, cifar.read_binary
    ),
    Format("SVHN, cropped digits", svhn.HOLDS, ("svhn",), svhn.find, svhn.read),
    Format("LEAF FEMNIST shards", leaf.HOLDS, ("femnist",), leaf.find, leaf.read),
    Format("a folder of pictures", folder.HOLDS, ("folder",), folder.find, folder.read),
)
_BUNDLE = Format(
    ".npz bundle",
    bundle.HOLDS,
    ("npz", *(name for name in KINDS if name not in ("npz", "folder"))),
    lambda path: path if bundle.is_bundle(path) else None,
    bundle.read,
)
_HOLDS: Mapping[str, str] = {
    "npz": bundle.HOLDS,
    **{name: form.holds for form in _FORMATS for name in form.names},
}


def wanted(name: str) -> str:
    """Say what `data.path` must lead to for a data set."""
    if name == "npz":
        return bundle.HOLDS
    return f"a folder with {_HOLDS[name]}" if name != "folder" else _HOLDS[name]


def recognise(path: Path, name: str | None = None) -> Found:
    """Recognise what a folder or file holds.

    Parameters
    ----------
    path : Path
    name : str, optional
        The data set it must be; without one, any.

    Raises
    ------
    DataError
        If it holds nothing known, more than one data set, or another than `name`.
    """
    with _readable(path):
        found = _in_folder(path, name) if path.is_dir() else [_in_file(path, name)]
        if not found:
            raise DataError(_nothing(path, name))
    if len(found) > 1:
        told = " and ".join(place.name if form is _BUNDLE else form.title for form, place in found)
        advice = "name one file" if all(form is _BUNDLE for form, _ in found) else "move one away"
        raise DataError(f"{path}: a folder with {len(found)} data sets, {told}; {advice}")
    form, place = found[0]
    if name is not None and name not in form.names:
        raise DataError(
            f"{path}: holds {form.title}, not {name}; set data.name to {' or '.join(form.names)}"
        )
    return Found(form, place, name or form.names[0])


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Name what cannot be looked into, such as a folder of somebody else's."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot read {error.filename or path}: {error.strerror}") from None


def _in_file(path: Path, name: str | None) -> tuple[Format, Path]:
    if not path.exists():
        raise DataError(f"there is no {path}")
    if not bundle.is_bundle(path):
        told = f"{path}: not an .npz bundle; "
        if name is None:
            raise DataError(f"{told}name one, or a folder")
        other = "" if name == "npz" else f" or to {wanted(name)}"
        raise DataError(f"{told}set data.path to one{other}")
    return _BUNDLE, path


def _in_folder(path: Path, name: str | None) -> list[tuple[Format, Path]]:
    """Return every data set in a folder; of bundles, with a name, only the one so called."""
    found = [(form, place) for form in _FORMATS if (place := form.find(path)) is not None]
    if name in (None, "npz"):
        bundles = sorted(path.glob("*.npz"))
    else:
        bundles = [place for place in (path / f"{name}.npz",) if place.is_file()]
    return [*found, *((_BUNDLE, place) for place in bundles)]


def _nothing(path: Path, name: str | None) -> str:
    """Say that nothing was found and, if it is one folder deeper, where."""
    for inner in sorted(place for place in path.iterdir() if place.is_dir()):
        deeper = _in_folder(inner, name)
        if len(deeper) == 1 and (name is None or name in deeper[0][0].names):
            return f"{path}: no data set, but {inner} holds {deeper[0][0].title}; name that folder"
    missing = idx.FIRST if name in _IDX.names else "data set that is known"
    holds = wanted(name) if name else "; ".join(dict.fromkeys(_HOLDS.values()))
    return f"{path}: no {missing}; the folder must hold {holds.removeprefix('a folder with ')}"
