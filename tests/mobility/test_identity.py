"""The same joins, leaves and distances, whichever way the traffic is followed."""

from pathlib import Path
from typing import Any

import pytest
from traffic import replayed, steps

from testbed.config.schema import MobilityConfig, RsuConfig

# Near junctions that many vehicles pass.
PLACES = {
    "city_grid": (800.0, 800.0),
    "bologna_acosta": (922.9, 633.9),
    "bologna_pasubio": (877.9, 707.4),
}
ENDS = {1.0: 240.0, 0.5: 180.0, 0.1: 150.0}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    x, y = PLACES[request.param]
    rsu = RsuConfig(x=x, y=y, radius=400)
    if request.param == "city_grid":
        return {"rsu": rsu}
    folder = request.getfixturevalue("bologna") / request.param
    return {"rsu": rsu, "scenario": str(folder / "run.sumocfg")}


@pytest.mark.parametrize("step_length", ENDS)
@pytest.mark.parametrize("membership", ["network", "rsu"])
def test_libsumo_traci_and_replay_agree(
    place: dict[str, Any], membership: str, step_length: float, tmp_path: Path
) -> None:
    config = MobilityConfig(
        membership=membership, step_length=step_length, end=ENDS[step_length], warmup=0, **place
    )
    live, again = replayed(config, tmp_path / "trace.csv")
    assert steps(config.model_copy(update={"backend": "traci"})) == live
    assert again == [step for step in live if step.events or step.distances]
    assert len(live) == round(ENDS[step_length] / step_length)
    assert sum(len(step.events) for step in live) > 10
    assert any(step.distances for step in live) == (membership == "rsu")
