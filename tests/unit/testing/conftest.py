"""The fixture of the plugin, also where the package is not installed but only on the path."""

from deltaworks.pytest_plugin import driver_for as driver_for
