"""Who it is: passwords, tokens, signed tokens and certificates, each checked and made a `User`.

`Authenticator` is the one door: somebody's `Credentials` go in, a `User` comes out or
`Unauthenticated` is raised, with a sentence that does not tell a guesser what was right about them.
What is slow (hashing a password, asking for keys) runs beside the event loop. What a user may do is
none of its business (`sow.security.authorization`); nor is the network: whoever makes one hands it
a way to fetch. Nothing is imported here: a server that asks nobody needs none of the libraries of
`authenticator`.
"""
