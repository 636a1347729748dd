"""Sessions and subscriptions: the commands of clients, executed on the engine."""
