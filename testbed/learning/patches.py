"""Second moments of a convolution's input patches, mostly without forming the patches.

A patch a_t holds the c kh kw inputs under the kernel at location t, in the order of
``weight.reshape(o, -1)``; wanted is A = sum_t a_t a_t^T.  Forming all patches ("im2col")
copies every input kh kw times.  But an entry of A pairs two image rows which are at most
kh - 1 kernel rows apart, so A is contained in the second moments of such pairs,

    S_d[y] = X[y]^T X[y + d],   X[y] (n, c w): row y of the n inputs,   d = 0 ... kh - 1.

These are large matrix products, summed over batches; A is gathered from them at the end.
It costs kh h (c w)^2 multiply-adds a sample against T (c kh kw)^2, about a third for
kernels of 5 x 5, and about as many numbers to keep.  Where it does not pay, or where they
would be too many (hundreds of channels), patches are formed.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

_MOST = 2**25  # numbers in a layer's moments of rows: 128 MiB


def padded(module: nn.Conv2d, x: Tensor) -> Tensor:
    """Return inputs `x` (n, c, h, w) as the convolution pads them."""
    widths = module._reversed_padding_repeated_twice  # "same" and "valid" resolved
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    return functional.pad(x, widths, mode=mode) if any(widths) else x


def patches(module: nn.Conv2d, x: Tensor) -> Tensor:
    """Return the patches (n, c kh kw, T) of padded inputs."""
    return functional.unfold(x, module.kernel_size, dilation=module.dilation, stride=module.stride)


class PatchMoments:
    """A, summed over all inputs seen, with a constant input 1 last if there is a bias.

    Parameters
    ----------
    module : Conv2d
    example : Tensor, shape (c, h, w)
        Any one of its inputs, before padding; only the shape counts.
    """

    def __init__(self, module: nn.Conv2d, example: Tensor) -> None:
        self._module = module
        self._samples = 0
        self._inputs = padded(module, torch.zeros_like(example)[None])
        locations = patches(module, self._inputs[:, :1]).shape[-1]
        c, h, w = self._inputs.shape[1:]
        kh, kw = module.kernel_size
        by_rows, by_patches = kh * h * (c * w) ** 2, locations * (c * kh * kw) ** 2
        pays = by_rows < min(by_patches, _MOST)
        self._products = _ByRows(module, c, h, w) if pays else _ByPatches(module)

    def add(self, x: Tensor) -> None:
        """Take inputs (n, c, h, w), before padding."""
        x = padded(self._module, x)
        self._products.add(x)
        self._inputs += x.sum(dim=0)
        self._samples += len(x)

    def total(self) -> Tensor:
        """Return A."""
        a = self._products.total()
        if self._module.bias is None:
            return a
        (inputs,) = patches(self._module, self._inputs)
        last = torch.cat([inputs.sum(dim=1), a.new_tensor([self._samples * inputs.shape[1]])])
        return torch.cat([torch.cat([a, last[None, :-1]]), last[:, None]], dim=1)


class _ByPatches:
    """A, summed over patches."""

    def __init__(self, module: nn.Conv2d) -> None:
        self._module = module
        size = module.weight[0].numel()
        self._a = module.weight.new_zeros(size, size)

    def add(self, x: Tensor) -> None:
        columns = patches(self._module, x).transpose(0, 1).flatten(1)
        self._a += columns @ columns.T

    def total(self) -> Tensor:
        return self._a


class _ByRows:
    """A, gathered from the second moments of pairs of image rows."""

    def __init__(self, module: nn.Conv2d, channels: int, height: int, width: int) -> None:
        self._module = module
        self._channels, self._height, self._width = channels, height, width
        size = self._channels * self._width
        self._moments = [
            module.weight.new_zeros(self._height - d * module.dilation[0], size, size)
            for d in range(module.kernel_size[0])
        ]

    def add(self, x: Tensor) -> None:
        rows = x.permute(2, 0, 1, 3).reshape(self._height, len(x), -1)
        for moments in self._moments:
            pairs = len(moments)
            moments += torch.bmm(rows[:pairs].transpose(1, 2), rows[self._height - pairs :])

    def total(self) -> Tensor:
        kh, kw = self._module.kernel_size
        a = self._moments[0].new_zeros(self._channels, kh, kw, self._channels, kh, kw)
        for d, moments in enumerate(self._moments):
            for u in range(kh - d):
                pair = self._windows(moments, u)
                a[:, u, :, :, u + d, :] = pair
                a[:, u + d, :, :, u, :] = pair.permute(2, 3, 0, 1)
        return a.reshape(self._channels * kh * kw, -1)

    def _windows(self, moments: Tensor, u: int) -> Tensor:
        """Sum over locations the moments of kernel rows u and u + d: (c, kw, c, kw)."""
        module, line = self._module, self._channels * self._width
        down, along = (
            1 + (size - dilation * (kernel - 1) - 1) // stride
            for size, dilation, kernel, stride in zip(
                (self._height, self._width),
                module.dilation,
                module.kernel_size,
                module.stride,
                strict=True,
            )
        )
        rows = moments[u * module.dilation[0] :: module.stride[0]][:down].sum(dim=0)
        # Entry (c, v, c', v', t) pairs inputs v and v' of the kernel row at location t.
        step, kw = module.dilation[1], module.kernel_size[1]
        shape = (self._channels, kw, self._channels, kw, along)
        strides = (self._width * line, step * line, self._width, step)
        return rows.as_strided(shape, (*strides, module.stride[1] * (line + 1))).sum(dim=-1)
