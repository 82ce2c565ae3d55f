"""Ask a model for logits, gradients and feature maps, and leave it unchanged."""
