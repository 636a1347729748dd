"""The media types of what travels over HTTP, as headers name them.

Which requests take and give which, the server says; how each looks is documented in docs/http.md.
"""

JSON = "application/json"
PROBLEM = "application/problem+json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
ARROW_FILE = "application/vnd.apache.arrow.file"
"""The same tables with an index of their parts at the end, for readers that open files."""
PARQUET = "application/vnd.apache.parquet"
CSV = "text/csv"
PLAIN_TEXT = "text/plain"
XML = "application/xml"
"""One element. `text/xml` says the same."""
MSGPACK = "application/vnd.msgpack"
BSON = "application/bson"
EVENT_STREAM = "text/event-stream"
BYTES = "application/octet-stream"
"""One message, as it is."""
FRAMES = "application/vnd.sow.frames"
"""Many messages, each after its length."""
COLUMNS_HEADER = "SOW-Columns"
"""The header with the columns of a JSON response, and the `Prefer` token that requests it."""
PREFER_COLUMNS = "sow-columns"
ADVICE_HEADER = "SOW-Advice"
"""The header with what there is to say of fields that no record has: sentences, percent-encoded and
joined by `; `."""
