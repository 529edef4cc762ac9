"""The network of the analysis, and F-SOSA's projection on it without approximation.

Source: arXiv 2610.35212, section V-B, on the network of FedFisher's theory (Jhunjhunwala,
Wang and Joshi, AISTATS 2024).

Notation (paper -> here)
------------------------
f(x) = sum_r a_r relu(w_r x)   -> `TwoLayer`; W (m x d) is trained, a_r = +-1 / sqrt(m) fixed
W0, m                          -> start (standard normal), its number of rows
squared loss, |x| = 1          -> labels y of any scale, pictures of norm 1

The gradient of f(x_n) with respect to W is s_n x_n^T, with the slopes s_n = a * 1[W x_n > 0].
A client's full Fisher is therefore F_k = J_k^T J_k, where the rows of J_k are s_i x_i^T; its
K-FAC approximation G_k (x) A_k, with G_k = sum_i s_i s_i^T and A_k = (1 / n_k) sum_j x_j x_j^T,
has the rows s_i x_j^T / sqrt(n_k) of all pairs of its samples.

In the limit of infinite width the Gram matrix of the gradients at W0 is H, with
H_ij = x_i . x_j (pi - arccos x_i . x_j) / (2 pi); the analysis assumes its least eigenvalue
lambda_0 to be positive.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from testbed.learning.factors import Diagonal, Kronecker

_SINGULAR = 1e-10  # share of the largest eigenvalue below which one counts as zero


@dataclass(frozen=True, eq=False)
class TwoLayer:
    """Two-layer ReLU network of which the first layer is trained.

    Attributes
    ----------
    start : Tensor of float64, shape (m, d)
        W0.
    output : Tensor of float64, shape (m,)
        a.
    """

    start: Tensor
    output: Tensor

    @classmethod
    def drawn(cls, width: int, inputs: int, rng: np.random.Generator) -> "TwoLayer":
        """Draw the weights."""
        signs = 2.0 * rng.integers(2, size=width) - 1.0
        return cls(
            torch.from_numpy(rng.standard_normal((width, inputs))),
            torch.from_numpy(signs / width**0.5),
        )

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        """Return f(x) (n,) for inputs (n, d)."""
        return torch.relu(x @ w.T) @ self.output

    def slopes(self, w: Tensor, x: Tensor) -> Tensor:
        """Return s (n, m)."""
        return (x @ w.T > 0) * self.output

    def loss(self, w: Tensor, x: Tensor, y: Tensor) -> float:
        """Return the mean squared error."""
        return float((self(w, x) - y).square().mean())

    def train(self, x: Tensor, y: Tensor, steps: Sequence[int]) -> Iterator[Tensor]:
        """Yield W after so many steps of gradient descent from W0, on half the squared error.

        The steps take all samples, at the rate 1 / lambda_max(X X^T).  W - W0 stays in the
        span of the samples, so its coefficients (n, m) are what moves.
        """
        gram, before = x @ x.T, x @ self.start.T
        rate = 1.0 / float(torch.linalg.eigvalsh(gram)[-1])
        moved = torch.zeros_like(before)
        for done, until in pairwise((0, *steps)):
            for _ in range(until - done):
                z = before + gram @ moved
                errors = torch.relu(z) @ self.output - y
                moved -= rate * errors.unsqueeze(1) * ((z > 0) * self.output)
            yield self.start + moved.T @ x

    def kfac(self, w: Tensor, x: Tensor) -> Kronecker:
        """Return a client's K-FAC factors, as the testbed's fusion takes them."""
        s = self.slopes(w, x)
        return Kronecker(a=x.T @ x / len(x), g=s.T @ s)

    def diagonal(self, w: Tensor, x: Tensor) -> Diagonal:
        """Return the diagonal of a client's Fisher."""
        return Diagonal(self.slopes(w, x).square().T @ x.square())

    def project(
        self, ws: Sequence[Tensor], xs: Sequence[Tensor], fisher: Literal["full", "kfac"]
    ) -> Tensor:
        """Project the mean of the clients' W_k onto {F W = b}, with F = sum_k J_k^T J_k.

        F, of side m d, is never formed: W* = W_bar + J^+ u, where u stacks the
        J_k (W_k - W_bar), and J^+ = J^T (J J^T)^+ lives in the space of samples.

        Parameters
        ----------
        ws, xs : sequence of Tensor, shapes (m, d) and (n_k, d)
            Trained weights and samples, client by client.
        fisher : {"full", "kfac"}

        Returns
        -------
        Tensor, shape (m, d)
        """
        mean = torch.stack(list(ws)).mean(dim=0)
        slopes = [self.slopes(w, x) for w, x in zip(ws, xs, strict=True)]
        s, x = torch.cat(slopes), torch.cat(list(xs))
        counts = torch.tensor([len(each) for each in xs])
        client = torch.repeat_interleave(counts)
        if fisher == "full":
            i = j = torch.arange(len(x))
            weight = torch.ones_like(x[:, 0])
        else:
            i, j = (client.unsqueeze(1) == client).nonzero(as_tuple=True)
            weight = counts[client[i]].to(x.dtype).rsqrt()
        offsets = torch.cat([s @ (w - mean) for s, w in zip(slopes, ws, strict=True)])
        u = weight * (offsets @ x.T)[i, j]
        gram = (s @ s.T)[i][:, i] * (x @ x.T)[j][:, j] * weight.outer(weight)
        values, vectors = torch.linalg.eigh(gram)
        kept = values > _SINGULAR * values[-1]
        dual = vectors[:, kept] @ ((vectors[:, kept].T @ u) / values[kept])
        coefficients = x.new_zeros(len(x), len(x))
        coefficients[i, j] = weight * dual
        return mean + s.T @ coefficients @ x


def limit_gram(x: Tensor) -> Tensor:
    """Return H (n, n) of inputs (n, d) of norm 1."""
    cosines = (x @ x.T).clamp(-1.0, 1.0)
    return cosines * (math.pi - cosines.arccos()) / (2 * math.pi)
