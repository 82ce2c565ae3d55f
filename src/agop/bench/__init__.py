"""Benchmarks: cells → a run folder, in parallel and resumable."""
