import math

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.mobility.events import MobilityEvent, Place, participates
from testbed.mobility.membership import Circle, CoverageRule, NetworkRule, as_events
from testbed.streams import Streams

CIRCLE = Circle(x=10.0, y=-5.0, radius=100.0, hysteresis=0.1)


def at(distance: float, angle: float = 0.0) -> tuple[float, float]:
    return CIRCLE.x + distance * math.cos(angle), CIRCLE.y + distance * math.sin(angle)


def in_reach(
    rule: CoverageRule, time: float = 0.0, **distances: float
) -> tuple[set[str], set[str]]:
    """Take in a step with vehicles at these distances from the one area."""
    return rule.update(time, [], [], {name: at(metres) for name, metres in distances.items()})


def test_network_rule_follows_departures_and_arrivals() -> None:
    rule = NetworkRule()
    assert rule.update(0, ["a", "b"], [], {}) == (set(), {"a", "b"})
    assert rule.update(1, [], [], {}) == (set(), set())
    assert rule.update(2, ["c"], ["a"], {}) == ({"a"}, {"c"})
    assert rule.places() == {}


def test_network_rule_ignores_a_vehicle_that_comes_and_goes_in_one_step() -> None:
    assert NetworkRule().update(0, ["a"], ["a"], {}) == (set(), set())


def test_network_rule_lets_a_name_return_in_the_step_of_its_arrival() -> None:
    rule = NetworkRule()
    rule.update(0, ["a"], [], {})
    assert rule.update(1, ["a"], ["a"], {}) == ({"a"}, {"a"})
    assert rule.update(2, [], ["a"], {}) == ({"a"}, set())


def test_coverage_begins_at_the_radius_and_ends_beyond_the_hysteresis() -> None:
    rule = CoverageRule([CIRCLE])
    walk = [(101, 0, 0), (100, 0, 1), (109, 0, 0), (99, 0, 0), (110.5, 1, 0), (105, 0, 0)]
    for distance, leaves, joins in walk:
        gone, come = in_reach(rule, v=distance)
        assert (len(gone), len(come)) == (leaves, joins), distance


def test_coverage_without_hysteresis_is_the_plain_circle() -> None:
    rule = CoverageRule([Circle(0.0, 0.0, 5.0, 0.0)])
    assert rule.update(0, [], [], {"v": (3.0, 4.0)}) == (set(), {"v"})
    assert rule.update(1, [], [], {"v": (3.0, 4.001)}) == ({"v"}, set())


def test_coverage_drops_a_member_that_has_no_position_any_more() -> None:
    rule = CoverageRule([CIRCLE])
    in_reach(rule, a=1, b=2)
    assert rule.update(1, [], ["a"], {"b": at(2)}) == ({"a"}, set())


def test_members_have_their_distance_in_whole_centimetres() -> None:
    rule = CoverageRule([CIRCLE])
    rule.update(0, [], [], {"a": at(100 / 3), "b": at(200)})
    assert rule.places() == {"a": Place("rsu", 33.33)}
    in_reach(rule, 1.0, a=111)
    assert rule.places() == {}


def test_a_visit_makes_a_member_after_the_minimum_stay() -> None:
    rule = CoverageRule([CIRCLE], minimum_stay=3)
    assert in_reach(rule, 0, long=50, short=50) == (set(), set())
    assert in_reach(rule, 1, long=50, short=50) == (set(), set())
    assert rule.places() == {}
    assert in_reach(rule, 2, long=50) == (set(), set())
    assert in_reach(rule, 3, long=50, short=50) == (set(), {"long"})
    assert rule.places() == {"long": Place("rsu", 50.0)}
    assert in_reach(rule, 4) == ({"long"}, set())


def test_a_visit_outlives_a_short_gap_but_not_an_arrival() -> None:
    rule = CoverageRule([CIRCLE], grace=2)
    in_reach(rule, 0, blip=50, lost=60, home=70)
    assert rule.update(1, [], ["home"], {}) == ({"home"}, set())
    assert rule.places() == {"blip": Place("rsu", 50.0), "lost": Place("rsu", 60.0)}
    assert in_reach(rule, 2) == (set(), set())
    # Both were away for two seconds; one is still.
    assert in_reach(rule, 3, blip=90) == ({"lost"}, set())
    assert rule.places() == {"blip": Place("rsu", 90.0)}
    # The next gap is counted from its own start.
    assert in_reach(rule, 4) == (set(), set())
    assert in_reach(rule, 5, blip=10) == (set(), set())


def test_an_arrival_in_a_gap_ends_the_visit() -> None:
    rule = CoverageRule([CIRCLE], grace=10)
    in_reach(rule, 0, v=50)
    assert in_reach(rule, 1) == (set(), set())
    assert rule.update(2, [], ["v"], {}) == ({"v"}, set())


def test_a_gap_counts_towards_the_stay_but_nobody_joins_unseen() -> None:
    rule = CoverageRule([CIRCLE], minimum_stay=2, grace=3)
    in_reach(rule, 0, v=50)
    assert in_reach(rule, 1) == (set(), set())
    assert in_reach(rule, 2) == (set(), set())
    assert in_reach(rule, 3, v=50) == (set(), {"v"})


def test_steps_of_a_tenth_are_counted_exactly() -> None:
    rule = CoverageRule([CIRCLE], minimum_stay=0.3)
    times = [round(step * 0.1, 6) for step in range(5)]
    assert [bool(in_reach(rule, time, v=50)[1]) for time in times] == [
        *(False, False, False, True, False),
    ]


EAST = Circle(100.0, 0.0, 80.0, 0.1, "east")
WEST = Circle(0.0, 0.0, 80.0, 0.1, "west")


def drive(rule: CoverageRule, *xs: float) -> list[tuple[int, int, str]]:
    """Drive along the line through both areas; return leaves, joins and the serving area."""
    found = []
    for time, x in enumerate(xs):
        leaves, joins = rule.update(time, [], [], {"v": (x, 0.0)})
        found.append((len(leaves), len(joins), "".join(p.rsu for p in rule.places().values())))
    return found


def test_in_one_domain_a_hand_over_is_no_event() -> None:
    # 48 : 52 is not yet nearer by more than a tenth, 47 : 53 is.
    assert drive(CoverageRule([WEST, EAST]), -81, -80, 40, 52, 53, 100, 188, 189) == [
        *((0, 0, ""), (0, 1, "west"), (0, 0, "west"), (0, 0, "west")),
        *((0, 0, "east"), (0, 0, "east"), (0, 0, "east"), (1, 0, "")),
    ]


def test_separate_areas_hand_over_by_a_leave_and_a_join() -> None:
    way = (0, 52, 53, 48, 47)
    assert drive(CoverageRule([WEST, EAST], follow="west"), *way) == [
        *((0, 1, "west"), (0, 0, "west"), (1, 0, ""), (0, 0, ""), (0, 1, "west")),
    ]
    assert drive(CoverageRule([WEST, EAST], follow="east"), *way) == [
        *((0, 0, ""), (0, 0, ""), (0, 1, "east"), (0, 0, "east"), (1, 0, "")),
    ]


def test_a_hand_over_away_is_no_gap() -> None:
    assert drive(CoverageRule([WEST, EAST], grace=60, follow="west"), 0, 100) == [
        *((0, 1, "west"), (1, 0, "")),
    ]


def test_a_new_vehicle_is_served_by_the_nearest_and_then_by_name() -> None:
    for areas in ([WEST, EAST], [EAST, WEST]):
        rule = CoverageRule(areas)
        rule.update(0, [], [], {"middle": (50.0, 0.0), "left": (49.9, 0.0), "right": (50.1, 0.0)})
        assert {name: place.rsu for name, place in rule.places().items()} == {
            "middle": "east",
            "left": "west",
            "right": "east",
        }


points = st.tuples(st.floats(-200, 300), st.floats(-200, 200))


@settings(max_examples=100)
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), points, max_size=4), max_size=15))
def test_areas_apart_partition_what_one_domain_holds(
    walk: list[dict[str, tuple[float, float]]],
) -> None:
    one = CoverageRule([WEST, EAST])
    each = {name: CoverageRule([WEST, EAST], follow=name) for name in ("west", "east")}
    for time, positions in enumerate(walk):
        one.update(time, [], [], positions)
        found: dict[str, dict[str, Place]] = {}
        for name, rule in each.items():
            rule.update(time, [], [], positions)
            found[name] = dict(rule.places())
            assert all(place.rsu == name for place in found[name].values())
        assert found["west"].keys().isdisjoint(found["east"])
        assert found["west"] | found["east"] == one.places()


@given(st.lists(st.floats(100.001, 109.999), min_size=1, max_size=50), st.floats(0, 6.28))
def test_a_vehicle_on_the_border_makes_one_visit(distances: list[float], angle: float) -> None:
    rule = CoverageRule([CIRCLE])
    assert rule.update(0, [], [], {"v": at(50, angle)}) == (set(), {"v"})
    for distance in distances:
        assert rule.update(1, [], [], {"v": at(distance, angle)}) == (set(), set())
    assert rule.update(2, [], [], {}) == ({"v"}, set())


@settings(max_examples=200)
@given(
    st.lists(st.dictionaries(st.sampled_from("abcd"), st.floats(0, 200), max_size=4), max_size=20),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_joins_and_leaves_alternate_and_agree_with_the_distance(
    walk: list[dict[str, float]], minimum_stay: int, grace: int
) -> None:
    rule = CoverageRule([CIRCLE], minimum_stay, grace)
    members: set[str] = set()
    for time, distances in enumerate(walk):
        leaves, joins = in_reach(rule, time, **distances)
        assert leaves <= members
        assert joins.isdisjoint(members)
        members = (members - leaves) | joins
        assert rule.places().keys() == members
        assert all(distances[name] <= 100 for name in joins) or minimum_stay
        if not grace:
            assert all(distances[name] <= 110.001 for name in members)
        if not minimum_stay:
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
    assert as_events(3.0, set(), {"a"}, "east")[0].rsu == "east"


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
