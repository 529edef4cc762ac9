"""Opening the source of membership events that a configuration asks for."""

from testbed.config.schema import MobilityConfig
from testbed.mobility.events import MobilitySource


def open_source(config: MobilityConfig, seed: int) -> MobilitySource:
    """Open live traffic, a recorded trace, traffic drawn at random, or a schedule.

    Parameters
    ----------
    config : MobilityConfig
    seed : int
        Of SUMO, or of the draws; a trace needs none.

    Returns
    -------
    MobilitySource
        To be used as a context manager.

    Raises
    ------
    ConfigError, ScenarioError, TraceError
        If what the configuration names is missing, broken, or does not fit it.
    """
    if config.source == "trace":
        from testbed.mobility.replay import TraceSource

        return TraceSource(config)
    if config.source == "generated":
        from testbed.mobility.generator import GeneratedSource

        return GeneratedSource(config, seed)
    if config.source == "schedule":
        from testbed.mobility.schedule import ScheduledSource

        return ScheduledSource(config, seed)
    from testbed.mobility.live import SumoSource

    return SumoSource(config, seed)
