"""The AGOP: accumulator, training hook, fit, merge and file format."""

from __future__ import annotations
