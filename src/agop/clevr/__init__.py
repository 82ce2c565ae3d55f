"""CLEVR-XAI: scenes of simple things, questions about them, and masks of where they stand."""
