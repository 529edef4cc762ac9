"""Traffic without an end, in which nothing happens any more."""

from collections.abc import Callable
from pathlib import Path

import pytest
from traffic import record, steps

from testbed.config.schema import MobilityConfig
from testbed.errors import ScenarioError

Make = Callable[..., Path]


def standing(seconds: int) -> str:
    """Return a vehicle that stops in the only lane where the next one is to depart."""
    return (
        '<routes><vehicle id="a" depart="0" departPos="20"><route edges="A0A1 A1A2"/>'
        f'<stop lane="A0A1_0" startPos="20" endPos="40" duration="{seconds}"/></vehicle>'
        '<vehicle id="b" depart="5" departLane="0" departPos="38"><route edges="A0A1"/></vehicle>'
        "</routes>"
    )


@pytest.mark.parametrize("backend", ["libsumo", "traci"])
def test_vehicles_that_wait_in_vain_end_a_run_without_an_end(
    make_scenario: Make, backend: str
) -> None:
    config = MobilityConfig(scenario=str(make_scenario(standing(20_000))), backend=backend)
    with pytest.raises(
        ScenarioError, match=r"1 vehicles wait for room .* set mobility.end"
    ) as told:
        record(config)
    assert "in the 3600 s before 3600 s" in str(told.value)


def test_a_run_with_an_end_goes_on_to_it(make_scenario: Make) -> None:
    config = MobilityConfig(scenario=str(make_scenario(standing(20_000))), end=4000, warmup=0)
    assert steps(config)[-1].time == 3999


def test_waiting_for_less_than_an_hour_is_no_fault(make_scenario: Make) -> None:
    events = record(MobilityConfig(scenario=str(make_scenario(standing(3000)))))
    assert [(event.kind, event.vehicle) for event in events].count(("leave", "b")) == 1


def test_a_long_quiet_time_without_anybody_waiting_is_no_fault(make_scenario: Make) -> None:
    late = '<routes><vehicle id="b" depart="9000"><route edges="A0A1 A1A2"/></vehicle></routes>'
    events = record(MobilityConfig(scenario=str(make_scenario(late))))
    assert events[0].time == 9000
