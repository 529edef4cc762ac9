"""The error tree.

Every error a user can cause derives from `TestbedError`.  Its message is one line that
names what was wrong, the value received and what to do; the command line prints that
line and exits with status 2.
"""


class TestbedError(Exception):
    """Base of all errors the testbed raises on purpose."""

    # Keeps pytest from trying to collect the class as a test.
    __test__ = False


class ConfigError(TestbedError):
    """A configuration file, a ``--set`` value or a combination of them is invalid."""


class ScenarioError(TestbedError):
    """A traffic scenario is missing, broken, empty, or SUMO refused to run it."""


class TraceError(TestbedError):
    """A recorded trace of membership events is malformed."""


class DataError(TestbedError):
    """A data set or its partition among clients is missing or malformed."""


class EditError(TestbedError):
    """A membership change cannot be applied to the federation."""


class FusionError(TestbedError):
    """Client contributions cannot be fused."""


class ResultsError(TestbedError):
    """A results folder cannot be written, or belongs to something else."""
