"""agop with other libraries, one module per library. `import agop` imports none of them."""

from agop.integrations.models import from_timm, from_torchvision, from_transformers

__all__ = ["from_timm", "from_torchvision", "from_transformers"]
