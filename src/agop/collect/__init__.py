"""Collect an AGOP from a model and its data: fit(), the training hook, and the exponents of the method agop."""
