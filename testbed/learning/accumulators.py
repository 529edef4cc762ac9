"""Running sums from which each layer's Fisher block is made.

An accumulator sees a layer's input, then the output gradients of one or more backward
passes, batch by batch.  Notation as in `testbed.learning.fisher`: rows a of inputs (a
constant 1 last with a bias) and rows g of output gradients, T of each per sample.

A batch's product is formed first and then added: BLAS would add term by term to the running
sum if asked for both at once, which loses a decimal.
"""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.learning.blocks import Block, Fused, Norm
from testbed.learning.factors import Diagonal, Factor, Kind, Kronecker
from testbed.learning.patches import PatchMoments, padded, patches


class Accumulator(Protocol):
    """Sums of one layer."""

    def see_input(self, x: Tensor) -> None:
        """Take the layer's input for a batch."""

    def see_gradient(self, g: Tensor) -> None:
        """Take the output gradient of one backward pass through that batch."""

    def factor(self, samples: int) -> Factor:
        """Return the Fisher block, once `samples` samples were seen."""


def accumulator(block: Block, module: Fused, kind: Kind, x: Tensor) -> Accumulator:
    """Return an empty accumulator for a layer whose inputs look like `x`."""
    if isinstance(module, Norm):
        return _NormDiagonal(block, module)
    if kind == "diagonal":
        return _Diagonal(block, module)
    return _Kronecker(block, module, x)


class _Kronecker:
    """K-FAC factors; a convolution's A is summed over locations, G averaged."""

    def __init__(self, block: Block, module: nn.Linear | nn.Conv2d, x: Tensor) -> None:
        self._module = module
        self._inputs: PatchMoments | _RowMoments = (
            PatchMoments(module, x[0])
            if isinstance(module, nn.Conv2d)
            else _RowMoments(block, module)
        )
        self._g = module.weight.new_zeros(block.rows, block.rows)

    def see_input(self, x: Tensor) -> None:
        self._inputs.add(x)

    def see_gradient(self, g: Tensor) -> None:
        rows = _gradient_rows(self._module, g)
        t, o = rows.shape[1:]
        if t < o:
            rows = rows.flatten(0, 1)
            self._g += rows.T @ rows / t
        else:  # sample by sample: as fast, and a sum of sums rounds less than one long sum
            self._g += torch.bmm(rows.transpose(1, 2), rows).sum(dim=0) / t

    def factor(self, samples: int) -> Kronecker:
        return Kronecker(_symmetric(self._inputs.total()) / samples, _symmetric(self._g))


class _RowMoments:
    """A of a linear layer."""

    def __init__(self, block: Block, module: nn.Linear) -> None:
        self._module = module
        self._a = module.weight.new_zeros(block.columns, block.columns)

    def add(self, x: Tensor) -> None:
        rows = _input_rows(self._module, x).flatten(0, 1)
        self._a += rows.T @ rows

    def total(self) -> Tensor:
        return self._a


class _Diagonal:
    """Squares of the per-sample gradients sum_t g_t a_t^T."""

    def __init__(self, block: Block, module: nn.Linear | nn.Conv2d) -> None:
        self._module = module
        self._f = module.weight.new_zeros(block.rows, block.columns)

    def see_input(self, x: Tensor) -> None:
        self._a = _input_rows(self._module, x.clone())  # may be overwritten later

    def see_gradient(self, g: Tensor) -> None:
        a, rows = self._a, _gradient_rows(self._module, g)
        if a.shape[1] == 1:
            self._f += rows[:, 0].square().T @ a[:, 0].square()
        else:
            self._f += torch.bmm(rows.transpose(1, 2), a).square().sum(dim=0)

    def factor(self, samples: int) -> Diagonal:
        return Diagonal(self._f)


class _NormDiagonal:
    """Squares of the per-sample gradients sum_t g_t xhat_t (scale) and sum_t g_t (shift)."""

    def __init__(self, block: Block, module: Norm) -> None:
        self._module = module
        self._f = module.weight.new_zeros(block.rows, block.columns)

    def see_input(self, x: Tensor) -> None:
        module = self._module
        if isinstance(module, nn.GroupNorm):
            self._normalised = functional.group_norm(x, module.num_groups, eps=module.eps)
        else:
            self._normalised = functional.batch_norm(
                x, module.running_mean, module.running_var, eps=module.eps
            )

    def see_gradient(self, g: Tensor) -> None:
        for row, gradient in zip(self._f, (g * self._normalised, g), strict=False):
            row += gradient.reshape(*g.shape[:2], -1).sum(dim=2).square().sum(dim=0)

    def factor(self, samples: int) -> Diagonal:
        return Diagonal(self._f)


def _input_rows(module: nn.Linear | nn.Conv2d, x: Tensor) -> Tensor:
    """Return a layer's input as rows (n, T, i), the constant 1 last when it has a bias."""
    if isinstance(module, nn.Conv2d):
        rows = patches(module, padded(module, x)).transpose(1, 2)
    else:
        rows = x.reshape(len(x), -1, module.in_features)
    if module.bias is None:
        return rows
    return torch.cat([rows, rows.new_ones(*rows.shape[:2], 1)], dim=2)


def _gradient_rows(module: nn.Linear | nn.Conv2d, g: Tensor) -> Tensor:
    """Return an output gradient as rows (n, T, o)."""
    if isinstance(module, nn.Conv2d):
        return g.flatten(2).transpose(1, 2)
    return g.reshape(len(g), -1, module.out_features)


def _symmetric(factor: Tensor) -> Tensor:
    """Remove the last bits by which a product X^T X differs from its transpose."""
    return (factor + factor.T) / 2
