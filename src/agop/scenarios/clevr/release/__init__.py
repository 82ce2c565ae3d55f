"""Read the official CLEVR-XAI files."""
