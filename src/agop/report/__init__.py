"""Reports: a run folder → tables, claims and files. Nothing here imports torch."""
