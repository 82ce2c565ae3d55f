"""Methods × metrics on images with masks: one scoring loop for users and benches."""

from __future__ import annotations
