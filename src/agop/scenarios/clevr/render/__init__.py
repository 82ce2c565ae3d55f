"""Render CLEVR-like scenes with a ray caster in NumPy."""
