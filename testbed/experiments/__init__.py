"""A configuration in, a folder of run directories out."""
