"""Vehicles that learn to detect objects."""
