"""A method on a batch of images."""
