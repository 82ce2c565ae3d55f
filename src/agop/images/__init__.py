"""Image files and folders, their preprocessing, and overlays of maps."""

from __future__ import annotations
