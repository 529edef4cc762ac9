"""One file per fusion method: pure functions from contributions to a model."""
