"""The AGOP: accumulator, training hook, fit, merge and file format."""
