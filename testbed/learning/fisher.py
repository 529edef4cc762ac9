"""Fisher information of a client's model on the client's data.

Notation
--------
a : input of a layer, one row per sample (Linear) or per sample and location (Conv2d),
    with a constant 1 appended when the layer has a bias.
g : gradient of log p(y | x) with respect to the layer's output, same rows as `a`.
A, G : Kronecker factors; the layer's Fisher is F = G (x) A for row-major vec(W).
T : number of locations of a convolution (1 for Linear).

``A = (1/n) sum a a^T`` and ``G = (1/T) sum E_y[g g^T]``: F is a *sum* over the client's n
samples, so each client's statistic is self-contained and F = sum_i F_i needs no data
sizes.  For convolutions this is KFC, "expand" (Grosse and Martens 2016): A sums over
locations, G averages over them.  The diagonal Fisher is the sum over samples of squared
per-sample gradients, without the K-FAC approximation.

Estimators of the expectation over labels y:

``exact``     over the model's own predictive distribution, one backward pass per class;
``sampled``   one label a sample drawn from it;
``empirical`` the true label.

Gradients are taken of layer *outputs* only, never of weights: a backward pass costs half
of a training pass.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.learning.blocks import State, fused_modules

Kind = Literal["kfac", "diagonal"]
Estimator = Literal["exact", "sampled", "empirical"]

_BATCH = 500


@dataclass(frozen=True, eq=False)
class Kronecker:
    """K-FAC factors of one block.

    Attributes
    ----------
    a : Tensor, shape (i, i)
        Input covariance, symmetric positive semi-definite.
    g : Tensor, shape (o, o)
        Output-gradient covariance, symmetric positive semi-definite.
    """

    a: Tensor
    g: Tensor


@dataclass(frozen=True, eq=False)
class Diagonal:
    """Diagonal Fisher of one block, ``f`` of shape (o, i), non-negative."""

    f: Tensor


Factor = Kronecker | Diagonal
Fisher = Mapping[str, Factor]


def fisher(
    model: nn.Module,
    state: State,
    pictures: Tensor,
    labels: Tensor,
    kind: Kind,
    estimator: Estimator,
    rng: np.random.Generator,
) -> dict[str, Factor]:
    """Compute the Fisher blocks of `state` on a client's samples.

    Parameters
    ----------
    model : Module
        Supplies the architecture; its weights are overwritten.  Run in eval mode.
    state : mapping of str to Tensor
    pictures : Tensor, shape (n, c, h, w)
    labels : Tensor of int64, shape (n,)
        Used by the ``empirical`` estimator only.
    kind : {"kfac", "diagonal"}
    estimator : {"exact", "sampled", "empirical"}
    rng : Generator
        Draws the labels of the ``sampled`` estimator.

    Returns
    -------
    dict of str to Kronecker or Diagonal
        One per block of the model, in float32.
    """
    model.load_state_dict(dict(state))
    model.eval()
    sums: _Sums = _KroneckerSums(len(labels)) if kind == "kfac" else _DiagonalSums()
    with _watched(model, sums) as sources:
        for x, y in zip(torch.split(pictures, _BATCH), torch.split(labels, _BATCH), strict=True):
            sources.clear()
            logits = model(x)
            for vector in _output_gradients(logits.detach(), y, estimator, rng):
                torch.autograd.grad(logits, sources, vector, retain_graph=True)
    return sums.factors()


def _output_gradients(
    logits: Tensor, labels: Tensor, estimator: Estimator, rng: np.random.Generator
) -> Iterator[Tensor]:
    """Yield vectors v (n, C) with sum over vectors of v v^T = E_y[(e_y - p)(e_y - p)^T].

    ``e_y - p`` is the gradient of log p(y | x) with respect to the logits.
    """
    p = functional.softmax(logits, dim=1)
    classes = p.shape[1]
    if estimator == "exact":
        for c in range(classes):
            onehot = functional.one_hot(torch.tensor(c), classes)
            yield p[:, c : c + 1].sqrt() * (onehot - p)
        return
    if estimator == "sampled":
        draws = torch.from_numpy(rng.random((len(p), 1)))
        labels = (p.double().cumsum(dim=1) < draws).sum(dim=1).clamp(max=classes - 1)
    yield functional.one_hot(labels, classes) - p


class _Sums(Protocol):
    """Running sums over the client's samples, block by block."""

    def see_input(self, name: str, a: Tensor) -> None:
        """Take a block's input rows, shape (n, T, i)."""

    def see_gradient(self, name: str, g: Tensor) -> None:
        """Take the gradient rows of one backward pass, shape (n, T, o)."""

    def factors(self) -> dict[str, Factor]:
        """Return the Fisher blocks."""


class _KroneckerSums:
    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._a: dict[str, Tensor] = {}
        self._g: dict[str, Tensor] = {}

    def see_input(self, name: str, a: Tensor) -> None:
        rows = a.flatten(0, 1)
        _add(self._a, name, rows.T @ rows / self._samples)

    def see_gradient(self, name: str, g: Tensor) -> None:
        rows = g.flatten(0, 1)
        _add(self._g, name, rows.T @ rows / g.shape[1])

    def factors(self) -> dict[str, Factor]:
        return {
            name: Kronecker(_symmetric(a), _symmetric(self._g[name]))
            for name, a in self._a.items()
        }


class _DiagonalSums:
    def __init__(self) -> None:
        self._rows: dict[str, Tensor] = {}
        self._f: dict[str, Tensor] = {}

    def see_input(self, name: str, a: Tensor) -> None:
        self._rows[name] = a

    def see_gradient(self, name: str, g: Tensor) -> None:
        a = self._rows[name]
        if a.shape[1] == 1:
            _add(self._f, name, g[:, 0].square().T @ a[:, 0].square())
        else:
            _add(self._f, name, torch.bmm(g.transpose(1, 2), a).square().sum(dim=0))

    def factors(self) -> dict[str, Factor]:
        return {name: Diagonal(f) for name, f in self._f.items()}


def _add(sums: dict[str, Tensor], name: str, term: Tensor) -> None:
    sums[name] = sums[name] + term if name in sums else term


def _symmetric(factor: Tensor) -> Tensor:
    """Remove the last bits by which a product X^T X differs from its transpose."""
    return (factor + factor.T) / 2


@contextmanager
def _watched(model: nn.Module, sums: _Sums) -> Iterator[list[Tensor]]:
    """Watch the model's blocks; yield the outputs at which backward passes may end.

    The weights are frozen meanwhile, so that no pass computes their gradients.
    """
    sources: list[Tensor] = []

    def hook_for(name: str) -> Any:
        def hook(module: Any, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            sums.see_input(name, _input_rows(module, args[0].detach()))
            # With frozen weights the graph starts here.  The clone lets an in-place
            # activation follow; a hook on the original still sees the right gradient.
            starts = not output.requires_grad
            if starts:
                output = output.detach().requires_grad_()
                sources.append(output)
            output.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient: sums.see_gradient(name, _gradient_rows(gradient))
            )
            return output.clone() if starts else None

        return hook

    hooks = [module.register_forward_hook(hook_for(name)) for name, module in fused_modules(model)]
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield sources
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
        for hook in hooks:
            hook.remove()


def _input_rows(module: nn.Linear | nn.Conv2d, x: Tensor) -> Tensor:
    """Return a layer's input as rows (n, T, i), the constant 1 last when it has a bias."""
    if isinstance(module, nn.Linear):
        rows = x.reshape(len(x), -1, x.shape[-1])
    else:
        # Column order (c, k, k) of unfold is that of weight.reshape(o, -1).
        rows = functional.unfold(
            x,
            module.kernel_size,
            dilation=module.dilation,
            padding=module.padding,  # type: ignore[arg-type]  # a word only if asked for
            stride=module.stride,
        ).transpose(1, 2)
    if module.bias is None:
        return rows
    return torch.cat([rows, rows.new_ones(*rows.shape[:2], 1)], dim=2)


def _gradient_rows(gradient: Tensor) -> Tensor:
    """Return an output gradient (n, o, ...) as rows (n, T, o)."""
    if gradient.dim() == 2:
        return gradient.unsqueeze(1)
    return gradient.flatten(2).transpose(1, 2)
