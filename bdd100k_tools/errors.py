"""The one error of this package."""


class LabelError(Exception):
    """A label file is missing or malformed; the message is one line."""
