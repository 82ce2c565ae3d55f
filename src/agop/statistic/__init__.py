"""The AGOP: its running sums, the hook and the pass that collect them, its file."""
