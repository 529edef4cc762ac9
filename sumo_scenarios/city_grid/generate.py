"""Make this folder's network and routes again from ``scenario.yaml``.

Run as ``python sumo_scenarios/city_grid/generate.py``; with the same SUMO the files come
out byte for byte as they are committed.
"""

from pathlib import Path

from testbed import files
from testbed.mobility.building import demand, network
from testbed.mobility.scenarios import find


def main() -> None:
    """Write the network, then the demand that runs on it."""
    scenario = find(str(Path(__file__).parent))
    generator = scenario.generator
    if generator is None:
        raise SystemExit("scenario.yaml has no generator settings")
    files.write_bytes(scenario.folder / generator.net, network(generator))
    files.write_bytes(scenario.folder / generator.routes, demand(scenario, generator.density))


if __name__ == "__main__":
    main()
