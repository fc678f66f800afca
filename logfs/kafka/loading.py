"""Loading kafka-python without its clients, and of its messages only those that are used.

``import kafka`` loads its consumer, producer and admin client, and ``kafka.protocol.admin`` makes
classes for the messages of all of its modules: a third of what a short command takes. So these
packages are there by their names and places first, and their modules can be imported. The rest of a
package is loaded when a name of it is first used.
"""

import importlib
import importlib.util
import sys

_PACKAGES = (
    "kafka",
    "kafka.protocol.admin",
    "kafka.protocol.consumer",
    "kafka.protocol.metadata",
    "kafka.protocol.producer",
)


def load_on_use() -> None:
    """Make the packages importable, unless they are loaded or missing."""
    for name in _PACKAGES:
        if name not in sys.modules and not _add(name):
            return


def _add(name: str) -> bool:
    """Put a package among the loaded ones; returns False if it is missing."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return False
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader

    def get(attribute: str) -> object:
        del module.__getattr__
        loader.exec_module(module)
        return getattr(module, attribute)

    module.__getattr__ = get  # type: ignore[method-assign]
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(importlib.import_module(parent), child, module)
    return True
