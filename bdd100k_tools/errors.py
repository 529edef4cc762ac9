"""The error tree of this package.

Every error a user can cause derives from `ToolsError`.  Its message is one line that names
what was wrong, the value received and what to do; the command prints it and exits with 2.
"""


class ToolsError(Exception):
    """Base of all errors this package raises on purpose."""


class LabelError(ToolsError):
    """A label file is missing, malformed or empty."""


class PictureError(ToolsError):
    """A folder of pictures is missing, or does not fit the labels."""


class PredictionError(ToolsError):
    """A predictions file is missing or malformed."""


class PartitionError(ToolsError):
    """The pictures cannot be spread over the clients as asked."""


class EvaluationError(ToolsError):
    """Nothing can be evaluated, or the library that evaluates is not installed."""


class UsageError(ToolsError):
    """An option of the command has a value it cannot have."""


class OutputError(ToolsError):
    """A result cannot be written."""
