"""`${NAME}` in a value: replaced after the XML is parsed, so that a value is never markup.

Names are looked up in what the command line set, then in the environment, then among the
built-in ones; both mappings are handed in, as nothing here reads the process's environment.
"""

import os.path
import re
from collections import ChainMap
from collections.abc import Mapping

from sow.config.diagnostics import MistakeError
from sow.core.suggest import nearest

REFERENCE = re.compile(r"\$\{([^}]*)\}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Variables:
    """The values of `${NAME}` in one file."""

    def __init__(
        self, file: str, variables: Mapping[str, str], environment: Mapping[str, str]
    ) -> None:
        built_in = {
            "AMPS_CONFIG_PATH": file,
            "AMPS_CONFIG_DIRECTORY": os.path.dirname(file) or ".",
        }
        self._values = ChainMap({}, dict(variables), dict(environment), built_in)

    def expand(self, text: str, but: str = "") -> str:
        """`text` with every variable replaced, once; raises MistakeError. Names that begin with
        `but` are left for another reader to resolve."""

        def value(found: re.Match[str]) -> str:
            stays = but and found[1].startswith(but)
            return found[0] if stays else self._value(found[1])

        return REFERENCE.sub(value, text)

    def _value(self, name: str) -> str:
        if not NAME.fullmatch(name):
            raise MistakeError(f"${{{name}}} does not name a variable", "write ${NAME}")
        if name not in self._values:
            meant = nearest(name, self._values)
            raise MistakeError(
                f"the variable {name} is not defined",
                (f"did you mean {meant}? If not, " if meant else "")
                + f"start with --set {name}=VALUE or put {name} into the environment",
            )
        return self._values[name]
