"""Ask a model for logits, gradients and feature maps, and leave it unchanged."""

from __future__ import annotations
