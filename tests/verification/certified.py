"""What the tests of the certificate share."""

from testbed.verification.part import Part

SMALL = ("clients.initial=5", "clients.pool=8", "learning.epochs=1")


def failed(part: Part) -> str:
    """Return the sentence of a part that must have failed: one plain line."""
    assert not part.passed
    assert part.sentence
    assert "\n" not in part.sentence
    return part.sentence
