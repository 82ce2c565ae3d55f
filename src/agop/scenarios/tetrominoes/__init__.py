"""Tetrominoes in noise, as XAI-TRIS has them at both sizes: patterns, backgrounds, and their mixture."""
