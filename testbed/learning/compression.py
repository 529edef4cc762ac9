"""Reduced forms of Fisher factors for the uplink; all stay positive semi-definite.

``full``      the upper triangle of each symmetric factor.
``half``      a root U of each factor M = U^T U, upper triangular, in float16; columns have
              length one and their lengths go along in full precision, so every entry of M
              is within 2^-10 of sqrt(M_jj M_kk) and the diagonal is kept.
``low-rank``  the leading eigenpairs, V = diag(lambda)^(1/2) Q^T of shape (rank, k), and
              M = V^T V; factors that are smaller as a triangle stay full.

Rounding a factor itself could make it indefinite; rounding a root cannot.  A diagonal
block f is sent as sqrt(f / max f) by ``half``, and in full by ``low-rank``.  What the
coordinator works with is what it received: F and b alike are formed from decoded factors.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Form = Literal["full", "half", "low-rank"]
Parts = dict[str, Tensor]


@dataclass(frozen=True)
class Upload:
    """How Fisher factors are sent.

    Attributes
    ----------
    form : {"full", "half", "low-rank"}
    rank : int
        Eigenpairs kept of a factor by ``low-rank``.
    """

    form: Form = "full"
    rank: int = 32


FULL = Upload()


def encode(side: str, factor: Tensor, upload: Upload) -> Parts:
    """Return the tensors that stand for a symmetric factor (k, k), keyed by `side` and role."""
    if upload.form == "half":
        root = torch.linalg.qr(_root(factor), mode="r").R
        unit = (root * _inverse(root.norm(dim=0))).half()
        lengths = factor.diagonal().double().clamp_min(0).sqrt() * _inverse(
            unit.double().norm(dim=0)
        )
        return {f"{side}.root": _pack(unit), f"{side}.scale": lengths.to(factor.dtype)}
    if upload.form == "low-rank" and 2 * upload.rank < len(factor) + 1:
        leading = _root(factor)[-upload.rank :]
        return {f"{side}.leading": leading.to(factor.dtype).contiguous()}
    return {side: _pack(factor)}


def decode(side: str, parts: Mapping[str, Tensor]) -> Tensor:
    """Invert `encode` up to what its form gave up.

    Raises
    ------
    KeyError
        If a part is missing.
    """
    if side in parts:
        factor = _unpack(parts[side])
        rows, columns = torch.triu_indices(*factor.shape)
        factor[columns, rows] = factor[rows, columns]
        return factor
    if f"{side}.leading" in parts:
        root = parts[f"{side}.leading"]
        dtype = root.dtype
    else:
        scale = parts[f"{side}.scale"]
        root, dtype = _unpack(parts[f"{side}.root"]).double() * scale.double(), scale.dtype
    factor = root.double().T @ root.double()
    return ((factor + factor.T) / 2).to(dtype)


def encode_diagonal(side: str, f: Tensor, upload: Upload) -> Parts:
    """Return the tensors that stand for a diagonal block."""
    if upload.form != "half":
        return {side: f.contiguous()}
    scale = f.max()
    return {
        f"{side}.root": (f.double() * _inverse(scale.double())).sqrt().half().contiguous(),
        f"{side}.scale": scale,
    }


def decode_diagonal(side: str, parts: Mapping[str, Tensor]) -> Tensor:
    """Invert `encode_diagonal`; raises KeyError if a part is missing."""
    if side in parts:
        return parts[side]
    scale = parts[f"{side}.scale"]
    return (parts[f"{side}.root"].double().square() * scale.double()).to(scale.dtype)


def _root(factor: Tensor) -> Tensor:
    """Return V (k, k) in float64 with V^T V = factor, ordered by ascending eigenvalue."""
    values, vectors = torch.linalg.eigh(factor.double())
    root: Tensor = vectors * values.clamp_min(0).sqrt()
    return root.T


def _inverse(values: Tensor) -> Tensor:
    """1 / values, and 0 where a value is 0."""
    return torch.where(values > 0, 1 / values, 0.0)


def _pack(matrix: Tensor) -> Tensor:
    """Keep the upper triangle of a matrix (k, k) as k (k + 1) / 2 numbers."""
    rows, columns = torch.triu_indices(*matrix.shape)
    return matrix[rows, columns]


def _unpack(packed: Tensor) -> Tensor:
    """Return the upper triangular matrix that `_pack` packed."""
    size = (math.isqrt(8 * packed.numel() + 1) - 1) // 2
    matrix = packed.new_zeros(size, size)
    rows, columns = torch.triu_indices(size, size)
    matrix[rows, columns] = packed
    return matrix
