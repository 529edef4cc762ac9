"""What a failing disk does to a store."""

from pathlib import Path


def flip_bits(store: Path) -> int:
    """Flip a bit in every entry of a store; return how many there are."""
    entries = [path for path in store.rglob("*") if path.is_file()]
    for entry in entries:
        content = bytearray(entry.read_bytes())
        content[-1] ^= 1
        entry.write_bytes(content)
    return len(entries)
