"""Files, worker processes, progress bars and torch.distributed."""
