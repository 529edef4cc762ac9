"""The length of a message from shapes, against the library that writes it."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from testbed.learning.messages import DTYPES, message_bytes

SHAPES = st.lists(st.integers(0, 40), max_size=3).map(tuple)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
TENSORS = st.dictionaries(
    NAMES.filter(lambda name: name != "__metadata__"),
    st.tuples(SHAPES, st.sampled_from(list(DTYPES))),
    max_size=7,
)


@settings(deadline=None, max_examples=150)
@given(TENSORS)
def test_the_length_is_that_of_the_message(described: dict[str, Any]) -> None:
    tensors = {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in described.items()}
    without_memory = {name: value.to("meta") for name, value in tensors.items()}
    assert message_bytes(without_memory) == message_bytes(tensors) == len(save(tensors))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_has_its_width(dtype: torch.dtype) -> None:
    tensors = {"a": torch.zeros(3, dtype=dtype), "b": torch.zeros(10**5, dtype=dtype)}
    assert message_bytes(tensors) == len(save(tensors))


def test_a_message_larger_than_the_memory_has_a_length() -> None:
    huge = torch.zeros(10**7, 10**6, device="meta")
    header = '{"w":{"dtype":"F32","shape":[10000000,1000000],"data_offsets":[0,40000000000000]}}'
    assert len(header) == 82  # and six spaces
    assert message_bytes({"w": huge}) == 8 + 88 + 4 * 10**13
