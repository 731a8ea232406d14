"""Validates SBOMs against the schema of their format, strictly."""

import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

paths = sorted(Path(sys.argv[1]).glob("*.cdx.json"))
if not paths:
    sys.exit(f"{sys.argv[1]}: there is no SBOM")
for path in paths:
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(path.read_text()):
        sys.exit(f"{path}: {error}")
    print(f"{path} is CycloneDX 1.6")
