"""The definitions of all kinds of gantrymq.io, as files for the API server.

`python -m gantry_operator.api.definitions FOLDER...` writes them (`make crds`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from gantry_operator.api import groupdefinition, schema, topicdefinition
from gantry_operator.api.brokercluster import GROUP
from gantry_operator.api.fields import Schema, text_of


def definitions() -> list[Schema]:
    """Return the CustomResourceDefinition of each kind."""
    return [schema.definition(), topicdefinition.definition(), groupdefinition.definition()]


def files() -> dict[str, str]:
    """Return the definitions as YAML texts by file name."""
    return {
        f"{GROUP}_{each['spec']['names']['plural']}.yaml": text_of(each, "gantry_operator.api.definitions")
        for each in definitions()
    }


def main() -> None:
    for folder in sys.argv[1:]:
        for name, text in files().items():
            Path(folder, name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
