"""Configuration: a YAML file and ``--set`` values in, frozen values out."""

from testbed.config.loading import load
from testbed.config.schema import Experiment, subset_size
from testbed.config.spec import canonical, spec_hash

__all__ = ["Experiment", "canonical", "load", "spec_hash", "subset_size"]
