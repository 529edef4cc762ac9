"""Data: official files in, pictures and their partition among the clients out."""

from testbed.data.dataset import Dataset
from testbed.data.partitions import IntArray, counts, hold_out, partition
from testbed.data.sources import load_dataset, load_labels, origin

__all__ = [
    "Dataset",
    "IntArray",
    "counts",
    "hold_out",
    "load_dataset",
    "load_labels",
    "origin",
    "partition",
]
