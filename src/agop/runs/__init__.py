"""The run folder: specification, rows, gallery. Benches write it, reports read it. No torch here."""
