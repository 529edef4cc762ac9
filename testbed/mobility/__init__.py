"""Mobility: traffic in, timed membership changes out."""

from testbed.mobility.columns import Recorder, Recording
from testbed.mobility.events import (
    MobilityEvent,
    MobilitySource,
    Place,
    Places,
    Provenance,
    Sighting,
    Step,
    Trace,
    check_order,
    participates,
)
from testbed.mobility.replay import MadeSource
from testbed.mobility.source import open_source
from testbed.mobility.trace import read_trace, write_trace

__all__ = [
    "MadeSource",
    "MobilityEvent",
    "MobilitySource",
    "Place",
    "Places",
    "Provenance",
    "Recorder",
    "Recording",
    "Sighting",
    "Step",
    "Trace",
    "check_order",
    "open_source",
    "participates",
    "read_trace",
    "write_trace",
]
