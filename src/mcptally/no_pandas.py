"""Keeps pyarrow from importing pandas in processes that need none: commands and their workers."""

import sys
from importlib.machinery import ModuleSpec


def hide_pandas() -> None:
    """Make `import pandas` fail in this process, unless pandas is loaded already.

    pyarrow imports pandas, where it is installed, as soon as an array is made: 0.4 s of CPU, a
    third of a short command.
    """
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _Hidden())


class _Hidden:
    """Finds pandas, because libraries check whether it is installed, but does not load it.

    `importlib.abc` has base classes for this, but takes 12 ms to import.
    """

    def find_spec(self, name: str, _path: object, _target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == "pandas" else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        raise ModuleNotFoundError(f"{spec.name} is hidden: mcptally's commands do not need it")

    def exec_module(self, module: object) -> None:
        """Never called: creating the module failed."""
