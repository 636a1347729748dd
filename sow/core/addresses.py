"""The addresses of the servers of one log, and which of them a client uses.

A client uses the first that answers, and stays there. When it is lost, the client tries each
address once, beginning with the one in use, since only that server has the client's session. Writes
have one server, the primary, which the others name: it is tried first for them, wherever reads are,
and forgotten when it does not answer. A primary may be named that is not in the list; it must have
the scheme of the list, so that no credentials leave an encrypted connection.

Nothing is connected here, and nothing waits: how long to pause after a round in which nobody has
answered is a matter of the client.
"""

from collections.abc import Collection, Sequence

from sow.errors import AnotherLog, ClientError, shown


def listed(given: str | Sequence[str]) -> list[str]:
    """The members of a list of addresses, or of text with commas; raises ClientError for an empty
    one."""
    found = [one.strip() for one in (given.split(",") if isinstance(given, str) else given)]
    if not found or "" in found[1:] or (not found[0] and len(found) > 1):
        raise ClientError(
            f"the list of addresses {shown(', '.join(found))} has an empty one; write for example "
            "http://a:8080,http://b:8080"
        )
    return found


class Addresses:
    """Addresses as a client uses them, from the first on; `current` is the one for reads, `primary`
    that for writes where another server has named it, and else empty.

    With `reads_writes` reads are to include what was written: `written` is the newest bookmark that
    a write was acknowledged with.
    """

    def __init__(self, urls: Sequence[str], reads_writes: bool = False) -> None:
        """`urls` are checked, each by itself; raises ClientError for several that are no list."""
        self.all = tuple(urls)
        self.current = urls[0]
        self.primary = ""
        self.log_id = ""
        """The name of the log, once it is known."""
        self.written = ""
        self._reads_writes = reads_writes
        scheme = _scheme(urls[0])
        for at, url in enumerate(urls):
            if _scheme(url) != scheme:
                raise ClientError(
                    f"the addresses {urls[0]} and {url} have different schemes; write all with "
                    "https:// if the servers have TLS, else all with http://"
                )
            if url in urls[:at]:
                raise ClientError(f"the address {url} is in the list twice; write it once")

    @property
    def are_several(self) -> bool:
        """Whether there is another address to go on at."""
        return len(self.all) > 1

    def next(self, tried: Collection[str], for_writes: bool = False) -> str | None:
        """The address to try after those that were tried in this round; None at its end."""
        at = self.all.index(self.current)
        order = (*self.all[at:], *self.all[:at])
        if for_writes and self.primary:
            order = (self.primary, *order)
        return next((url for url in order if url not in tried), None)

    def use(self, url: str) -> None:
        """Go on with reads at an address, which has answered."""
        if url in self.all:
            self.current = url

    def leave(self, url: str) -> None:
        """Begin the next round behind an address, and do not write to it by an earlier name."""
        if url == self.primary:
            self.primary = ""
        if url == self.current:
            at = self.all.index(url) + 1
            self.current = self.all[at % len(self.all)]

    def lead_to(self, primary: str, named_by: str) -> None:
        """The server at `named_by` names another one for writes; raises ClientError if that cannot
        be used."""
        url = primary.rstrip("/")
        if _scheme(url) != _scheme(self.current):
            raise ClientError(
                f"{named_by} names {shown(primary)} as the server for writes, which has another "
                f"scheme than the address {self.current}; give the follower its address with "
                f"{_scheme(self.current)}://"
            )
        self.primary = url

    def check_log(self, url: str, log_id: str) -> None:
        """Note the log of the server at `url`; of several, each must have the same one: raises
        AnotherLog."""
        if not self.are_several or not log_id:
            return
        self.log_id = self.log_id or log_id
        if log_id != self.log_id:
            raise AnotherLog(
                f"{url} has the log {log_id}, and the other addresses {self.log_id}: bookmarks of "
                "one mean nothing in the other; list servers of one log only"
            )

    def wrote(self, bookmark: str) -> None:
        """A write was acknowledged with a bookmark."""
        if self._reads_writes and bookmark.isdecimal():
            self.written = max(self.written, bookmark, key=lambda text: int(text or 0))

    @property
    def min_bookmark(self) -> str | None:
        """What reads are to include, with the name of its log; None: they need not include
        anything."""
        if not self.written:
            return None
        return f"{self.log_id}-{self.written}" if self.log_id else self.written


def _scheme(url: str) -> str:
    return url.partition("://")[0] if "://" in url else "http"
