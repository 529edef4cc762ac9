"""Testbed for one-shot federated model editing under vehicle dynamics.

Traffic becomes timed membership changes, membership changes become exact model
edits, and every second and byte on the way is written down.

Importing the package is cheap: torch, SUMO and plotting libraries are loaded by the
rooms that use them, never here.
"""

__version__ = "0.1.0"
