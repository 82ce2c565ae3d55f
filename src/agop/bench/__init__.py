"""Benchmarks: one cell → rows; many cells → a run folder; resume; what the paper claims."""
