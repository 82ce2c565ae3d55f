"""Versions of installed packages."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version(name: str = "agop") -> str:
    """The installed version; "unknown" for a checkout that is on the path without being installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
