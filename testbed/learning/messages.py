"""How long a safetensors message is, told from the shapes of what is in it."""

import json
from collections.abc import Mapping

import torch
from torch import Tensor

ALIGNED = 8  # a header is padded to a multiple of this, as the number of its bytes before it is
# In the order in which the library knows them.
DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
}
_RANKS = {dtype: rank for rank, dtype in enumerate(DTYPES)}


def message_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Return the length of `safetensors.torch.save(tensors)`.

    The tensors may be on the device ``meta``.

    Examples
    --------
    >>> from safetensors.torch import save
    >>> tensors = {"w": torch.zeros(2, 3), "n": torch.tensor([7])}
    >>> message_bytes(tensors) == len(save(tensors))
    True
    """
    entries, offset = {}, 0
    # The last types first, which are the widest; the header is compact JSON.
    for name, value in sorted(tensors.items(), key=lambda each: (-_RANKS[each[1].dtype], each[0])):
        end = offset + value.nbytes
        entries[name] = {
            "dtype": DTYPES[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    header = len(json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode())
    return ALIGNED + header + -header % ALIGNED + offset
