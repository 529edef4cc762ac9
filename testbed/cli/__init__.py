"""The ``testbed`` command: parse, call, print.

Commands import the rooms they use when they run, so that ``testbed --help`` is immediate
and works without torch or SUMO.
"""

from testbed.cli.app import main

__all__ = ["main"]
