"""From a distance to a rate: 3GPP path loss and the truncated Shannon bound.

Path loss, its spread and the probability of a line of sight are those of TR 38.901, UMi
street canyon, with the roadside unit's antenna at 10 m and the vehicle's at 1.5 m.  The rate
is that of TR 36.942, annex A: a share `alpha` of Shannon's, nothing under -10 dB, and at most
`cap` bit/s/Hz.
"""

import math
from dataclasses import dataclass, fields, replace
from statistics import NormalDist
from typing import NamedTuple

from testbed.config.schema import NetworkConfig
from testbed.streams import Streams

_MEGA = 1e6
_UNIT_HEIGHT, _VEHICLE_HEIGHT = 10.0, 1.5
_GROUND = 1.0  # effective height of the environment, TR 38.901 table 7.4.1-1 note 1
_LIGHT = 3.0e8  # the value note 1 gives
_NEAREST = 10.0  # metres, lower end of the path loss formulas
_SIGMA_LOS, _SIGMA_NLOS = 4.0, 7.82
_LEAST_SNR_DB = -10.0
_THERMAL_DBM = -174.0  # per Hz, at 290 K
_FIXED_MBPS = 40.0


@dataclass(frozen=True)
class Constants:
    """What a preset fixes; the fields are the keys of `network` that override them.

    Attributes
    ----------
    bandwidth_mhz, frequency_ghz : float
    power_dbm : float
        Of the transmitter.
    gains_dbi : float
        Of both antennas together.
    noise_figure_db : float
        Of the receiver.
    margin_db : float
        Taken off the signal-to-noise ratio, for interference and implementation.
    alpha, cap : float
        Share of Shannon's bound that is reached, and the highest bit/s/Hz.
    """

    bandwidth_mhz: float
    frequency_ghz: float
    power_dbm: float
    gains_dbi: float
    noise_figure_db: float
    margin_db: float
    alpha: float
    cap: float


# Sources of every number: docs/network.md.
PRESETS = {
    "nr-ul-20": Constants(20, 3.5, 23, 3 + 8, 5, 3, 0.4, 2.0),
    "nr-ul-100": Constants(100, 3.5, 23, 3 + 8, 5, 3, 0.4, 2.0),
    "nr-dl-20": Constants(20, 3.5, 33, 8 + 3, 9, 3, 0.6, 4.4),
    "itsg5": Constants(10, 5.9, 23, 3 + 3, 9, 3, 0.6, 2.7),
}


class Draw(NamedTuple):
    """The chance of one visit: a uniform number in [0, 1) and a standard normal one.

    There is a line of sight while `u` < P(LOS), so that a vehicle that comes nearer gets it
    at most once; shadowing is `z` standard deviations.
    """

    u: float
    z: float


def draw(streams: Streams, rsu: str, vehicle: str, visit: int) -> Draw:
    """Return the draw of a visit, the same whenever it is asked for."""
    u = streams.uniform("line of sight", rsu, vehicle, visit)
    share = streams.uniform("shadowing", rsu, vehicle, visit)
    return Draw(u, standard_normal(share))


def standard_normal(u: float) -> float:
    """Turn a uniform number in [0, 1) into a standard normal one."""
    # Half a step away from both ends, where the inverse is infinite.
    return NormalDist().inv_cdf(u * (1 - 2**-52) + 2**-53)


def line_of_sight_probability(metres: float) -> float:
    """P(LOS) at a horizontal distance (TR 38.901 table 7.4.2-1, UMi street canyon)."""
    if metres <= 18:
        return 1.0
    near = 18 / metres
    return near + math.exp(-metres / 36) * (1 - near)


def path_loss_los(metres: float, ghz: float) -> float:
    """Path loss in dB with a line of sight (TR 38.901 table 7.4.1-1, UMi street canyon)."""
    distance = _slant(metres)
    height = _UNIT_HEIGHT - _VEHICLE_HEIGHT
    effective = (_UNIT_HEIGHT - _GROUND) * (_VEHICLE_HEIGHT - _GROUND)
    breakpoint_ = 4 * effective * ghz * 1e9 / _LIGHT
    loss = 32.4 + 20 * math.log10(ghz)
    if metres <= breakpoint_:
        return loss + 21 * math.log10(distance)
    return loss + 40 * math.log10(distance) - 9.5 * math.log10(breakpoint_**2 + height**2)


def path_loss_nlos(metres: float, ghz: float) -> float:
    """Path loss in dB without a line of sight (as above); at least that with one."""
    # The table's term for the vehicle's height is zero at 1.5 m.
    loss = 35.3 * math.log10(_slant(metres)) + 22.4 + 21.3 * math.log10(ghz)
    return max(path_loss_los(metres, ghz), loss)


def _slant(metres: float) -> float:
    return math.hypot(max(metres, _NEAREST), _UNIT_HEIGHT - _VEHICLE_HEIGHT)


@dataclass(frozen=True)
class Radio:
    """The link between a vehicle and a roadside unit, in one direction.

    Attributes
    ----------
    constants : Constants or None
        None: the rate is `peak` at every distance.
    peak : float
        Bits per second where the distance is unknown.
    fading : bool
        Without it the rate is the mean over line of sight and none, and there is no shadowing.
    """

    constants: Constants | None
    peak: float
    fading: bool = True

    @classmethod
    def from_config(cls, config: NetworkConfig, downlink: bool = False) -> "Radio":
        """Build the link up or down.

        Overrides belong to `network.preset`; another preset of `network.downlink` keeps the
        constants of the table.
        """
        name = config.downlink if downlink and config.downlink else config.preset
        if name == "fixed":
            return cls(None, (config.rate_mbps or _FIXED_MBPS) * _MEGA, config.fading)
        constants, peak = PRESETS[name], None
        if name == config.preset:
            given = {field.name: getattr(config, field.name) for field in fields(Constants)}
            constants = replace(constants, **{k: v for k, v in given.items() if v is not None})
            peak = config.rate_mbps
        highest = constants.cap * constants.bandwidth_mhz
        return cls(constants, (highest if peak is None else peak) * _MEGA, config.fading)

    def rate(self, metres: float, draw: Draw) -> float:
        """Return the bits per second of a vehicle alone in the cell, 0 where there are none.

        Parameters
        ----------
        metres : float
            Horizontal distance.
        draw : Draw
            Of the visit; without fading it has no influence.
        """
        if self.constants is None:
            return self.peak
        probability = line_of_sight_probability(metres)
        if not self.fading:
            seen, hidden = (self.rate_in(metres, los) for los in (True, False))
            return probability * seen + (1 - probability) * hidden
        los = draw.u < probability
        return self.rate_in(metres, los, draw.z * (_SIGMA_LOS if los else _SIGMA_NLOS))

    def rate_in(self, metres: float, los: bool, shadowing_db: float = 0.0) -> float:
        """Return the bits per second with or without a line of sight."""
        if self.constants is None:
            return self.peak
        c = self.constants
        bandwidth = c.bandwidth_mhz * _MEGA
        loss = (path_loss_los if los else path_loss_nlos)(metres, c.frequency_ghz) + shadowing_db
        noise = _THERMAL_DBM + 10 * math.log10(bandwidth) + c.noise_figure_db
        snr_db = c.power_dbm + c.gains_dbi - loss - noise - c.margin_db
        if snr_db < _LEAST_SNR_DB:
            return 0.0
        return bandwidth * min(c.alpha * math.log2(1 + 10 ** (snr_db / 10)), c.cap)
