"""Audit: which regions and properties of images decide a class, and whether that is a shortcut."""

from __future__ import annotations
