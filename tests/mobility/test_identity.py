"""The same joins, leaves and distances, whichever way the traffic is followed."""

from pathlib import Path
from typing import Any

import pytest
from traffic import replayed, steps

from testbed.config.schema import AreaConfig, MobilityConfig, RsuConfig
from testbed.mobility import open_source

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


@pytest.mark.parametrize(
    ("domain", "step_length"), [("one", 1.0), ("one", 0.5), ("one", 0.1), ("separate", 1.0)]
)
def test_several_areas_agree_too(
    place: dict[str, Any], domain: str, step_length: float, tmp_path: Path
) -> None:
    """Two overlapping areas 300 m apart, so that vehicles are handed over."""
    x, y = place["rsu"].x, place["rsu"].y
    areas = (
        AreaConfig(name="west", x=x - 150, y=y, radius=250),
        AreaConfig(name="east", x=x + 150, y=y, radius=250),
    )
    keys = {**place, "rsu": RsuConfig(), "rsus": areas, "domain": domain}
    config = MobilityConfig(
        membership="multi_rsu", step_length=step_length, end=ENDS[step_length], warmup=0, **keys
    )
    live, again = replayed(config, tmp_path / "trace.parquet")
    assert steps(config.model_copy(update={"backend": "traci"})) == live
    assert again == [step for step in live if step.events or step.distances]
    assert sum(len(step.events) for step in live) > 10
    served = {area.rsu for step in live for area in step.distances.values()}
    assert served == ({"west", "east"} if domain == "one" else {"west"})


@pytest.mark.parametrize("membership", ["network", "rsu", "multi_rsu"])
def test_no_vehicle_is_asked_over_the_socket(
    membership: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SUMO is sent as many commands a step, whatever the number of vehicles."""
    from traci.connection import Connection

    sent: list[int] = []
    really = Connection._sendCmd

    def counting(self: Connection, *arguments: Any, **keys: Any) -> Any:
        sent[-1] += 1
        return really(self, *arguments, **keys)

    x, y = PLACES["city_grid"]
    areas = tuple(AreaConfig(name=f"a{n}", x=x + 200 * n, y=y, radius=300) for n in (0, 1))
    config = MobilityConfig(
        backend="traci",
        membership=membership,
        density=1.0,
        end=200,
        warmup=0,
        rsu=RsuConfig(x=x, y=y, radius=600),
        rsus=areas if membership == "multi_rsu" else (),
    )
    sent.append(0)
    monkeypatch.setattr(Connection, "_sendCmd", counting)
    members: set[str] = set()
    crowd = []
    with open_source(config, 1) as source:
        for step in source.steps():
            for event in step.events:
                (members.add if event.kind == "join" else members.discard)(event.vehicle)
            crowd.append(len(members))
            sent.append(0)
    steady = sent[5:-1]
    assert max(crowd) > 30
    assert max(steady) <= 4
    assert max(steady[-50:]) == max(steady[:50])
