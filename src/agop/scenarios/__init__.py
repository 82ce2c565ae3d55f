"""Data sets with a known truth: images, labels and masks from a seed."""

from __future__ import annotations

from agop.scenarios.xai_tris import Split, xai_tris

__all__ = ["Split", "xai_tris"]
