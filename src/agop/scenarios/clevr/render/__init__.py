"""Draw CLEVR-like scenes with a ray caster."""
