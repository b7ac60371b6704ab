"""The fixture of the plugin, also where the package is not installed but only on the path."""

from deltaworks.testing.plugin import driver_for as driver_for
