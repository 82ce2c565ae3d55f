"""Reports: tables, claims and pages from a run folder, without torch."""

from __future__ import annotations
