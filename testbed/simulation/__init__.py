"""The simulated world: traffic, vehicles, link and coordinator as SimPy processes."""
