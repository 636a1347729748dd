"""From a configuration to a running server: routes, bootstrap, manifests, checkpoints."""
