"""Work on the event loop: scheduler, runtime, group commit, timers, latency instruments."""
