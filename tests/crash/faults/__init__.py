"""Three nodes of a shared log over a real engine, with faults of several kinds.

    engines     the clusters, what stands for `<Log>`, and how their leader dies
    nodes       three `sow serve`, each with a relay between it and each server of the engine
    traffic     publishers that number what they send, subscribers of everything, and readers
    judge       what must hold, from answers, lines and the log alone
    faults      the kinds, and what each costs
    catalogue   what is known of every run, and the page of it

`python -m tests.crash.faults --engine nats --faults 100 --seed 1` plays, and `--write` keeps it.
"""
