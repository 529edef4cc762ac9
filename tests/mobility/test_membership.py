import math

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.mobility.events import MobilityEvent, participates
from testbed.mobility.membership import Circle, NetworkRule, RsuRule, as_events
from testbed.streams import Streams

CIRCLE = Circle(x=10.0, y=-5.0, radius=100.0, hysteresis=0.1)


def at(distance: float, angle: float = 0.0) -> tuple[float, float]:
    return CIRCLE.x + distance * math.cos(angle), CIRCLE.y + distance * math.sin(angle)


def test_network_rule_follows_departures_and_arrivals() -> None:
    rule = NetworkRule()
    assert rule.update(["a", "b"], [], {}) == (set(), {"a", "b"})
    assert rule.update([], [], {}) == (set(), set())
    assert rule.update(["c"], ["a"], {}) == ({"a"}, {"c"})


def test_network_rule_ignores_a_vehicle_that_comes_and_goes_in_one_step() -> None:
    assert NetworkRule().update(["a"], ["a"], {}) == (set(), set())


def test_network_rule_lets_a_name_return_in_the_step_of_its_arrival() -> None:
    rule = NetworkRule()
    rule.update(["a"], [], {})
    assert rule.update(["a"], ["a"], {}) == ({"a"}, {"a"})
    assert rule.update([], ["a"], {}) == ({"a"}, set())


def test_rsu_rule_joins_at_the_radius_and_leaves_beyond_the_hysteresis() -> None:
    rule = RsuRule(CIRCLE)
    walk = [(101, 0, 0), (100, 0, 1), (109, 0, 0), (99, 0, 0), (110.5, 1, 0), (105, 0, 0)]
    for distance, leaves, joins in walk:
        gone, come = rule.update([], [], {"v": at(distance)})
        assert (len(gone), len(come)) == (leaves, joins), distance


def test_rsu_rule_without_hysteresis_is_the_plain_circle() -> None:
    rule = RsuRule(Circle(0.0, 0.0, 5.0, 0.0))
    assert rule.update([], [], {"v": (3.0, 4.0)}) == (set(), {"v"})
    assert rule.update([], [], {"v": (3.0, 4.001)}) == ({"v"}, set())


def test_rsu_rule_drops_a_member_that_has_no_position_any_more() -> None:
    rule = RsuRule(CIRCLE)
    rule.update([], [], {"a": at(1), "b": at(2)})
    assert rule.update([], ["a"], {"b": at(2)}) == ({"a"}, set())


@given(st.lists(st.floats(100.001, 109.999), min_size=1, max_size=50), st.floats(0, 6.28))
def test_a_vehicle_on_the_border_makes_one_visit(distances: list[float], angle: float) -> None:
    rule = RsuRule(CIRCLE)
    assert rule.update([], [], {"v": at(50, angle)}) == (set(), {"v"})
    for distance in distances:
        assert rule.update([], [], {"v": at(distance, angle)}) == (set(), set())
    assert rule.update([], [], {}) == ({"v"}, set())


@settings(max_examples=200)
@given(
    st.lists(st.dictionaries(st.sampled_from("abcd"), st.floats(0, 200), max_size=4), max_size=20)
)
def test_joins_and_leaves_alternate_and_agree_with_the_distance(
    walk: list[dict[str, float]],
) -> None:
    rule = RsuRule(CIRCLE)
    members: set[str] = set()
    for distances in walk:
        leaves, joins = rule.update([], [], {name: at(d) for name, d in distances.items()})
        assert leaves <= members
        assert joins.isdisjoint(members)
        members = (members - leaves) | joins
        assert all(distances[name] <= 110.001 for name in members)
        assert {name for name, d in distances.items() if d <= 99.999} <= members


def test_events_of_a_step_are_leaves_then_joins_by_name() -> None:
    events = as_events(3.0, {"z", "b"}, {"y", "a"})
    assert events == (
        MobilityEvent(3.0, "b", "leave"),
        MobilityEvent(3.0, "z", "leave"),
        MobilityEvent(3.0, "a", "join"),
        MobilityEvent(3.0, "y", "join"),
    )
    assert as_events(3.0, set(), set()) == ()


def test_participation_depends_on_seed_and_name_alone() -> None:
    names = [f"v{number}" for number in range(4000)]
    chosen = {name for name in names if participates(Streams(7), name, 0.3)}
    assert chosen == {name for name in reversed(names) if participates(Streams(7), name, 0.3)}
    assert chosen != {name for name in names if participates(Streams(8), name, 0.3)}
    # Four standard deviations of a binomial share: sqrt(0.3 * 0.7 / 4000) = 0.0072.
    assert abs(len(chosen) / 4000 - 0.3) < 0.029


def test_a_higher_rate_only_adds_vehicles() -> None:
    streams = Streams(7)
    names = [f"v{number}" for number in range(500)]
    few, many = ({n for n in names if participates(streams, n, rate)} for rate in (0.2, 0.6))
    assert few < many
    assert all(participates(streams, name, 1.0) for name in names)
