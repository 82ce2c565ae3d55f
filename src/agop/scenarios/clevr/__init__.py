"""CLEVR-XAI: scenes of simple objects, questions about them, and masks of the objects."""
