"""The run folder: its specification, its rows, its pictures. Benches write it, reports read it; no torch here."""
