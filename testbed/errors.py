"""The error tree.

Every error a user can cause derives from `TestbedError`.  Its message is one line that
names what was wrong, the value received and what to do; the command line prints that
line and exits with status 2.
"""

import errno
import re

# What libraries say when memory is used up: torch, the C++ library, cuBLAS and cuDNN.
_MEMORY = ("allocate memory", "out of memory", "bad_alloc", "_STATUS_ALLOC_FAILED")
_DEVICE = ("CUDA", "CUBLAS", "CUDNN")
_SIZE = re.compile(r"allocate [\d.]+ \w+")


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


class ShortageError(TestbedError):
    """The memory of this machine or of its device was used up."""


def shortage(error: BaseException) -> str | None:
    """Say whose memory was used up, if that is what an error of some library means.

    Examples
    --------
    >>> shortage(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"))
    'the memory of the CUDA device is used up (it could not allocate 2.00 GiB)'
    >>> shortage(RuntimeError("the matrix is singular"))
    """
    text = str(error)
    known = isinstance(error, RuntimeError) and any(sign in text for sign in _MEMORY)
    full = isinstance(error, OSError) and error.errno == errno.ENOMEM
    if not (known or full or isinstance(error, MemoryError)):
        return None
    whose = "the CUDA device" if any(name in text for name in _DEVICE) else "this machine"
    size = _SIZE.search(text)
    wanted = f" (it could not {size[0]})" if size else ""
    return f"the memory of {whose} is used up{wanted}"
