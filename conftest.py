pytest_plugins = ["benchmarks.plugin"]  # options are read only from a conftest at the root
