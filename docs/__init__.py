"""The documentation; its tools are Python modules, no part of the package `hymo`."""
