"""Claims of the paper: what is measured, how it is judged, and the table of verdicts."""
