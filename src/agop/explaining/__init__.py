"""explain(): runs a method on a batch of images."""
