"""One file per editing method, and the couplings and work orders they share."""
