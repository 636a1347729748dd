"""Topics of SOW as virtual tables of Perspective: filters, groups, orders and pages are queries.

A viewer makes a view of a table, requests the number of its rows, and then those on the screen. A
view here is nothing but the parameters of a query, and a page its answer in Arrow, so a topic of
millions of records costs what the screen shows. `serve.py` serves it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sow.client.sync import Client

PLAIN = re.compile(r"(?:/?[A-Za-z_][\w-]*)+")
"""The columns that are shown: names that stand in an expression as they are."""
COMPARED = {"==": "=", "!=": "!=", ">": ">", "<": "<", ">=": ">=", "<=": "<="}
OF_TEXTS = {"begins with": "BEGINS WITH", "ends with": "ENDS WITH"}
AGGREGATES = {"sum": "SUM", "avg": "AVG", "min": "MIN", "max": "MAX", "any": "ANY"}
COUNTS = {"count": "COUNT", "distinct count": "COUNT_DISTINCT"}
ROW_PATH = "__ROW_PATH_{}__"
"""The column with the values of a group, as Perspective calls it."""


def kind_of(column: pa.DataType) -> str:
    """Perspective's name of a type; its integers have 32 bits, so ours are floats."""
    if pa.types.is_integer(column) or pa.types.is_floating(column) or pa.types.is_decimal(column):
        return "float"
    if pa.types.is_timestamp(column):
        return "datetime"
    if pa.types.is_date(column):
        return "date"
    return "boolean" if pa.types.is_boolean(column) else "string"


ARROW = {
    "float": pa.float64(),
    "datetime": pa.timestamp("ms"),
    "date": pa.date32(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}


def path(column: str) -> str:
    """A column's field: nested ones are called by their paths."""
    return column if column.startswith("/") else f"/{column}"


def literal(value: object) -> str:
    """A value of a filter as an expression has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def term(column: str, operator: str, value: object) -> str | None:
    """One line of a viewer's filter; None while it is not complete."""
    if operator in ("is null", "is not null"):
        return f"{path(column)} {operator.upper()}"
    if value is None or value == "":
        return None
    if operator in OF_TEXTS:
        return f"{path(column)} {OF_TEXTS[operator]} ({literal(value)})"
    return f"{path(column)} {COMPARED[operator]} {literal(value)}"


def question(config: Mapping[str, Any], schema: Mapping[str, str]) -> dict[str, str]:
    """The parameters of the query that a view's configuration asks for."""
    columns = [name for name in config.get("columns") or [] if name]
    groups: Sequence[str] = config.get("group_by") or []
    terms = [term(*one) for one in config.get("filter") or []]
    orders = [(path(name), way.upper()) for name, way in config.get("sort") or [] if way != "none"]
    found = {"filter": " AND ".join(filter(None, terms))}
    if groups:
        chosen = config.get("aggregates") or {}
        made = [f"{path(name)} AS /{ROW_PATH.format(at)}" for at, name in enumerate(groups)]
        for name in columns:
            default = "sum" if schema[name] == "float" else "count"
            function = {**AGGREGATES, **COUNTS}[chosen.get(name, default)]
            made.append(f"{function}({path(name)}) AS {path(name)}")
        found["projection"] = f"[{','.join(made)}]"
        found["grouping"] = f"[{','.join(map(path, groups))}]"
        orders = orders or [(f"/{ROW_PATH.format(at)}", "ASC") for at in range(len(groups))]
    else:
        found["select"] = ",".join(map(path, columns))
    found["order_by"] = ",".join(" ".join(one) for one in orders)
    return {name: text for name, text in found.items() if text}


class SowTables:
    """What Perspective calls a handler of a virtual server, for the topics of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._views: dict[str, tuple[str, dict[str, str]]] = {}

    def get_features(self) -> dict[str, Any]:
        """What a viewer offers its user."""
        compared = [*COMPARED, "is null", "is not null"]
        kinds = [*ARROW]
        numbers = [*AGGREGATES, *COUNTS]
        return {
            "group_by": True,
            "split_by": False,
            "sort": True,
            "expressions": False,
            "group_rollup_mode": ["flat"],
            "filter_ops": {
                kind: compared + ([*OF_TEXTS] if kind == "string" else []) for kind in kinds
            },
            "aggregates": {
                kind: numbers if kind == "float" else ["min", "max", "any", *COUNTS]
                for kind in kinds
            },
        }

    def get_hosted_tables(self) -> list[str]:
        """The topics that the user may see, of messages with fields."""
        plain = ("string", "binary", "int64", "double")
        topics = self._client.topics()
        return [one["name"] for one in topics if one["message_type"] not in plain]

    def table_schema(self, table: str, _config: object = None) -> dict[str, str]:
        """A topic's columns by name."""
        return self._kinds(self._client.http.columns(table))

    def table_size(self, table: str) -> int:
        """How many records a topic has."""
        return self._matches(table, {})

    def table_make_view(self, table: str, view: str, config: Mapping[str, Any]) -> None:
        """Keep its query: the server has no view of its own."""
        self._views[view] = (table, question(config, self.table_schema(table)))

    def table_describe(self, table: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """The columns that a view would have, or what speaks against it, in a sentence."""
        try:
            query = question(config, self.table_schema(table))
            columns = self._columns(table, query)
        except Exception as error:
            return {"config_error": str(error)}
        return {"expression_schema": {}, "view_schema": columns}

    def view_delete(self, view: str) -> None:
        """Forget it."""
        self._views.pop(view, None)

    def view_schema(self, view: str, _config: object = None) -> dict[str, str]:
        """The columns of a view."""
        return self._columns(*self._views[view])

    def view_size(self, view: str) -> int:
        """How many rows it has now."""
        return self._matches(*self._views[view])

    def view_get_data(
        self,
        view: str,
        _config: object,
        _schema: object,
        viewport: Mapping[str, int | None],
        data: Any,
    ) -> None:
        """Rows of a view, as they are now."""
        topic, query = self._views[view]
        start = viewport.get("start_row") or 0
        page: dict[str, object] = {**query, "skip_n": start}
        if (end := viewport.get("end_row")) is not None:
            page["top_n"] = max(0, end - start)
        rows = self._client.http.table(topic, page)
        marks = [name for name in rows.column_names if name.startswith("__ROW_PATH_")]
        names = [name for name in rows.column_names if name not in marks and PLAIN.fullmatch(name)]
        shown = names[viewport.get("start_col") or 0 : viewport.get("end_col")]
        rows = rows.select([*marks, *shown])
        kinds = [pa.field(one.name, ARROW[kind_of(one.type)]) for one in rows.schema]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, pa.schema(kinds)) as writer:
            writer.write_table(rows.cast(pa.schema(kinds), safe=False))
        data.from_arrow_ipc(sink.getvalue().to_pybytes())

    def _columns(self, topic: str, query: Mapping[str, str]) -> dict[str, str]:
        wanted = {name: query[name] for name in query.keys() & {"select", "projection", "grouping"}}
        return self._kinds(self._client.http.columns(topic, **wanted))

    def _kinds(self, schema: pa.Schema) -> dict[str, str]:
        return {
            field.name: kind_of(field.type)
            for field in schema
            if PLAIN.fullmatch(field.name) and not field.name.startswith("__ROW_PATH_")
        }

    def _matches(self, topic: str, query: Mapping[str, str]) -> int:
        wanted = {name: text for name, text in query.items() if name not in ("order_by", "select")}
        with self._client.http.rows(topic, {**wanted, "top_n": 0}) as rows:
            return int(rows.matches)
