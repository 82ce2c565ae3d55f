"""Read the official CLEVR-XAI release."""
