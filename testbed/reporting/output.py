"""Writing what is drawn from finished runs."""

from pathlib import Path

from testbed.files import write_bytes


def save(folder: Path, name: str, content: bytes) -> Path:
    """Write a drawing of the runs below `folder` to the file `name` in it; return its path.

    Raises
    ------
    ResultsError
        If it cannot be written; the message says that no result is lost.
    """
    path = folder / name
    write_bytes(
        path,
        content,
        advice=f"the results in {folder} are complete, `testbed plot {folder}` draws them",
    )
    return path
