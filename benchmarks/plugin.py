"""pytest --benchmark: placeholder until the runner stands."""
