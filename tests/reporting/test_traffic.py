"""The figure of an inspection shows what the numbers say."""

import numpy as np
import pytest
from extents import boxes
from test_figures import PNG

from testbed.config.schema import ArrivalsConfig
from testbed.mobility import MobilityEvent
from testbed.mobility.generator import generate
from testbed.reporting.style import PAGE, render
from testbed.reporting.traffic import traffic
from testbed.streams import Streams

EVENTS = [
    MobilityEvent(0, "a", "join"),
    MobilityEvent(0, "b", "join"),
    MobilityEvent(70, "c", "join"),
    MobilityEvent(80, "a", "leave"),
    MobilityEvent(110, "c", "leave"),
]


def panels(figure):
    return dict(zip(("members", "changes", "stays"), figure.axes, strict=True))


def test_a_small_history_as_it_is_drawn():
    drawn = panels(traffic(EVENTS, 0, 60, 120))
    (band,) = drawn["members"].collections
    low, high = band.get_paths()[0].get_extents().get_points()
    assert low.tolist() == [1, 1]  # M0 = 2, from the first minute on
    assert high.tolist() == [2, 4]
    members, mark = drawn["members"].lines
    assert members.get_xdata() * 60 == pytest.approx([0, 0, 70, 80, 110, 120])
    assert members.get_ydata().tolist() == [0, 2, 3, 2, 1, 1]
    assert set(mark.get_xdata()) == {1}
    joins, leaves = drawn["changes"].lines
    assert joins.get_xdata().tolist() == [0, 1, 2]
    assert joins.get_ydata().tolist() == [0, 1, 1]  # two were there before
    assert leaves.get_ydata().tolist() == [0, 2, 2]
    steps, marks = drawn["stays"].lines
    assert steps.get_xdata().tolist() == [0, 40, 80]
    assert steps.get_ydata().tolist() == [0, 50, 100]
    assert marks.get_xdata() == pytest.approx([44, 60, 76])
    assert drawn["stays"].get_xlabel() == "stay (s): p10 44, p50 60, p90 76"


def test_no_visit_that_ended_and_nobody_at_all():
    for events in (EVENTS[:3], []):
        drawn = panels(traffic(events, 0, 0, 30))
        assert drawn["stays"].get_xlabel() == "stay: no visit ended"
        # A warm-up that takes no time is not marked.
        assert len(drawn["members"].lines) == 1


@pytest.mark.parametrize("end", [50.0, 900.0, 20_000.0])
def test_words_do_not_overlap_and_the_bytes_are_the_same_each_time(end):
    events = generate(ArrivalsConfig(), end, Streams(0)).events
    figure = traffic(events, 0, end / 4, end)
    assert figure.get_size_inches()[0] == PAGE
    found = boxes(figure)
    size = figure.get_size_inches() * figure.dpi
    for box in found:
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= size[0] + 1
        assert box.y1 <= size[1] + 1
    for number, box in enumerate(found):
        assert not any(box.overlaps(other) for other in found[:number])
    assert render(figure, "png").startswith(PNG)
    assert render(figure, "png") == render(traffic(events, 0, end / 4, end), "png")


def test_rates_of_a_run_that_is_no_whole_number_of_minutes():
    events = [MobilityEvent(float(t), f"v{t}", "join") for t in range(91)]
    joins = panels(traffic(events, 0, 0, 90))["changes"].lines[0]
    # Two parts of 45 s, one join a second: at 1 to 44, and at 45 to 90.
    assert joins.get_xdata().tolist() == [0, 45, 90]
    assert np.allclose(joins.get_ydata(), np.array([44, 46, 46]) / 45 * 60)
