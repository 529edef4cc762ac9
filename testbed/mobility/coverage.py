"""The rule of membership that a configuration asks for."""

from testbed.config.schema import MobilityConfig
from testbed.errors import ConfigError
from testbed.mobility.events import Provenance
from testbed.mobility.membership import Circle, CoverageRule, NetworkRule, Rule

Default = tuple[float, float, float] | None


def rule(config: MobilityConfig, areas: tuple[Circle, ...]) -> Rule:
    """Return a fresh rule: coverage of the `areas`, or the whole network when there are none."""
    if not areas:
        return NetworkRule()
    rsu = config.rsu
    return CoverageRule(areas, rsu.minimum_stay, rsu.grace, followed(config))


def areas(config: MobilityConfig, default: Default, owner: str) -> tuple[Circle, ...]:
    """Return the areas of coverage that decide who is a member; none under ``network``.

    Parameters
    ----------
    config : MobilityConfig
    default : tuple of (x, y, radius) or None
        The roadside unit that the traffic brings with it, metres.
    owner : str
        What the traffic is called in a message.

    Raises
    ------
    ConfigError
        If a position or a radius is missing.
    """
    hysteresis = config.rsu.hysteresis
    if config.membership == "multi_rsu":
        return tuple(
            Circle(area.x, area.y, area.radius, hysteresis, area.name) for area in config.rsus
        )
    return (_circle(config, default, owner),) if config.membership == "rsu" else ()


def followed(config: MobilityConfig) -> str | None:
    """Return the only area whose visitors are members; None where all are one domain."""
    if config.membership != "multi_rsu" or config.domain == "one":
        return None
    return config.follow or config.rsus[0].name


def described(config: MobilityConfig, areas: tuple[Circle, ...]) -> Provenance:
    """Say what the rule is, for the manifest and the header of a trace."""
    membership: Provenance = {"membership": config.membership}
    if not areas:
        return membership
    first = areas[0]
    if config.membership == "rsu":
        place: Provenance = {"rsu_x": first.x, "rsu_y": first.y, "rsu_radius": first.radius}
    else:
        listed = (f"{area.name} ({area.x!r}, {area.y!r}) {area.radius!r}" for area in areas)
        place = {
            "rsus": "; ".join(listed),
            "domain": config.domain,
            "follow": followed(config),
        }
    return {
        **membership,
        **place,
        "rsu_hysteresis": first.hysteresis,
        "rsu_minimum_stay": config.rsu.minimum_stay,
        "rsu_grace": config.rsu.grace,
    }


def _circle(config: MobilityConfig, default: Default, owner: str) -> Circle:
    x, y, radius = config.rsu.x, config.rsu.y, config.rsu.radius
    if x is None or y is None:
        if default is None:
            raise ConfigError(
                f"{owner!r} has no roadside unit of its own; set mobility.rsu.x and "
                "mobility.rsu.y, in metres of its network"
            )
        x, y = default[:2]
    if radius is None:
        if default is None:
            raise ConfigError(
                f"{owner!r} has no roadside unit of its own; set mobility.rsu.radius"
            )
        radius = default[2]
    return Circle(x, y, radius, config.rsu.hysteresis)
