"""Files, processes, progress bars, and torch.distributed."""
