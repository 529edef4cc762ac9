"""Models, deterministic local training, Fisher information and contributions."""
