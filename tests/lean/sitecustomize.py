"""Spares processes of tests what torch and the zoo import, and plain training does not use.

Those are torch's compiler, which each optimizer imports, shapes of tensors without data, which
torch does, and torchvision and timm, which the zoo does. They take twice as long as the rest.
"""

import sys
from types import SimpleNamespace

sys.modules["torch._dynamo"] = SimpleNamespace(
    disable=lambda function, *_, **__: function, graph_break=lambda *_, **__: None
)
sys.modules["torch._meta_registrations"] = SimpleNamespace()
sys.modules["torchvision"] = sys.modules["timm"] = None  # they cannot be imported
