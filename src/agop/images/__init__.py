"""Image files and folders, their preprocessing, and overlays of maps."""
