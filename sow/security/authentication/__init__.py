"""Authentication: passwords, tokens, signed tokens and certificates, each checked and resolved to a
`User`.

`Authenticator` is the entry point: it returns the `User` of some `Credentials` or raises
`Unauthenticated`, with a detail that does not reveal which part was right. Slow work (hashing a
password, fetching keys) runs beside the event loop. Permissions are not its business
(`sow.security.authorization`); nor is the network: the caller passes a function that fetches.
Nothing is imported here: a server without authentication needs none of the libraries of
`authenticator`.
"""
