"""The shared log: one server writes it, others follow it, and an engine outside replicates it.

    protocol    what an engine promises: append, read, last, trim
    entry       the envelope of what is appended
    chain       which entries are valid, on every node alike
    writer      groups on their way, read back before they are released
    roles       who leads: beats, leases, the lead, stepping down
    adapters    NATS JetStream, PostgreSQL, Kafka and object stores as engines

Nothing here does I/O or reads a clock. An adapter speaks to one engine, a driver carries out what a
`LogNode` orders and reports what happens. Electing and replicating is the engine's work.
"""
