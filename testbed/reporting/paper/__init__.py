"""Figures and tables of whole sweeps, drawn from run folders alone."""
