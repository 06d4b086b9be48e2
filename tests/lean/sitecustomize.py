"""Spares processes of tests the imports of torch's compiler, torchvision and timm.

Each optimizer imports the first and each workload of the zoo all three, without a use for them
here. That takes twice as long as torch.
"""

import sys
from importlib import import_module
from types import ModuleType


class _Compiler(ModuleType):
    """The part of the compiler that a program needs which compiles nothing; loads the rest."""

    def disable(self, function, *_, **__):
        return function

    def graph_break(self, *_, **__):
        pass

    def __getattr__(self, name):
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules[self.__name__] is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


sys.modules["torch._dynamo"] = _Compiler("torch._dynamo")
sys.modules["torchvision"] = sys.modules["timm"] = None  # they cannot be imported
