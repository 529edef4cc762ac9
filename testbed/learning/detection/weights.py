"""Initial weights from a file: ``.safetensors``, or the ``.pt`` that ultralytics writes.

Such a ``.pt`` holds two networks: ``model``, the one that was trained, and ``ema``, the
running mean of its weights.  The mean is taken where there is one, as ultralytics does.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from testbed.data.unpickling import ForbiddenError
from testbed.errors import ConfigError
from testbed.learning.blocks import State
from testbed.learning.detection.checkpoint import Inert, read_checkpoint

# Depends on the number of classes: the branches of the last layer that tell classes apart.
_CLASS_HEAD = "model.22.cv3."


@dataclass(frozen=True, eq=False)
class Weights:
    """What a file holds.

    Attributes
    ----------
    path : Path
    origin : str
        Which part of the file was taken: ``ema``, ``model`` or ``tensors``.
    tensors : mapping of str to Tensor
        Numbers with a fraction in float32.
    """

    path: Path
    origin: str
    tensors: State


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model's initial state out of a file.

    Attributes
    ----------
    state : mapping of str to Tensor
        As the file has it; tensors of the class head that are missing or of another number
        of classes are the model's own.
    missing, mismatched : tuple of str
        Those tensors.
    unknown : tuple of str
        Tensors of the file that the model has not.
    """

    state: State
    missing: tuple[str, ...]
    mismatched: tuple[str, ...]
    unknown: tuple[str, ...]


def read_weights(path: Path) -> Weights:
    """Read a weight file; nothing in it is run, and nothing is downloaded.

    Raises
    ------
    ConfigError
        If the file is missing, broken, of another kind, or asks to run something.
    """
    if not path.is_file():
        raise _fault(path, "no such file, and nothing is downloaded; name one that is there")
    if path.suffix not in (".pt", ".safetensors"):
        raise _fault(path, "neither .pt nor .safetensors; name a file of one of these kinds")
    try:
        content = load_file(path) if path.suffix == ".safetensors" else read_checkpoint(path)
        origin, tensors = _network(content)
        return Weights(path, origin, {name: _plain(value) for name, value in tensors.items()})
    except ForbiddenError as error:
        raise _fault(
            path,
            f"refused, it asks for {error}, which no checkpoint needs; nothing of it was run, "
            "do not trust this file",
        ) from None
    except Exception as error:  # a broken file may raise any
        reason = " ".join(str(error).split()) or type(error).__name__
        raise _fault(path, f"not a readable weight file: {reason}; copy it again") from None


def fit(name: str, initial: State, weights: Weights) -> Fitted:
    """Fit a file's weights to a model.

    Parameters
    ----------
    name : str
        The model's, for messages.
    initial : mapping of str to Tensor
        Its state with random weights.
    weights : Weights

    Raises
    ------
    ConfigError
        If tensors beside the class head do not fit, or one is not finite.
    """
    given = weights.tensors
    missing = tuple(key for key in initial if key not in given)
    mismatched = tuple(
        key for key, own in initial.items() if key in given and given[key].shape != own.shape
    )
    kept = {*missing, *mismatched}
    if foreign := [key for key in initial if key in kept and not key.startswith(_CLASS_HEAD)]:
        first = foreign[0]
        found = f"is {tuple(given[first].shape)}" if first in given else "is missing"
        raise _fault(
            weights.path,
            f"not the weights of {name}: {len(initial) - len(kept)} of {len(initial)} tensors "
            f"fit, and {first} {found}, expected {tuple(initial[first].shape)}; "
            "name another file or set learning.model to the file's model",
        )
    state = {key: own if key in kept else given[key].to(own.dtype) for key, own in initial.items()}
    for key, value in state.items():
        if not bool(value.isfinite().all()):
            raise _fault(weights.path, f"{key} has numbers that are not finite; take another file")
    unknown = tuple(key for key in given if key not in initial)
    return Fitted(state, missing, mismatched, unknown)


def _network(content: Any) -> tuple[str, Mapping[str, Tensor]]:
    """Find the tensors in a checkpoint; return what they are of, and them by name."""
    parts = content if isinstance(content, dict) else {"model": content}
    for origin in ("ema", "model"):
        part = parts.get(origin)
        if isinstance(part, Inert):
            return origin, dict(_walk(part, ""))
        if isinstance(part, dict):
            return origin, part
    return "tensors", parts


def _walk(module: Inert, prefix: str) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters and buffers of a module by dotted name."""
    for held in ("_parameters", "_buffers"):
        for name, value in module.kept.get(held, {}).items():
            if value is not None:
                yield f"{prefix}{name}", value
    for name, child in module.kept.get("_modules", {}).items():
        yield from _walk(child, f"{prefix}{name}.")


def _plain(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(f"{type(value).__name__} among the tensors")
    dtype = torch.float32 if value.is_floating_point() else value.dtype
    return value.detach().to(dtype, copy=True, memory_format=torch.contiguous_format)


def _fault(path: Path, what: str) -> ConfigError:
    return ConfigError(f"detection.weights: {path}: {what}")
