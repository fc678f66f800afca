"""Loading kafka-python without its clients, which logfs does not use.

``import kafka`` loads its consumer, producer and admin client: a third of what a short command
takes. So the package is there by its name and its place first, and its modules can be imported; the
rest of it is loaded when a name of it is first used.
"""

import importlib.util
import sys


def load_on_use() -> None:
    """Make ``kafka`` importable, unless it is loaded or missing."""
    spec = None if "kafka" in sys.modules else importlib.util.find_spec("kafka")
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader

    def get(name: str) -> object:
        del module.__getattr__
        loader.exec_module(module)
        return getattr(module, name)

    module.__getattr__ = get  # type: ignore[method-assign]
    sys.modules["kafka"] = module
