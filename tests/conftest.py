"""What all tests share: reproducible property tests, and no model key that a test could spend."""

from __future__ import annotations

import os

from hypothesis import settings

# CI runs the same examples every time, so that a red run is a red change; a developer's machine looks for new ones
# and prints how to repeat what it finds.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("dev", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# No test talks to a vendor: with a key in the environment, `default_model()` would.
os.environ.pop("ANTHROPIC_API_KEY", None)
