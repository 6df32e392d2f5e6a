"""A graph as a tool, and an index as a tool: for an agent, or to be served to other programs."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Unpack
from uuid import uuid4

from pydantic import BaseModel, Field, TypeAdapter

from agentloop.bodies import JsonBody
from agentloop.drafts import shorten
from agentloop.errors import GraphBuildError, GraphError
from agentloop.json_data import inlined
from agentloop.model.prompts import Schema
from agentloop.model_calls import Model, current_model
from agentloop.signatures import without_titles
from agentloop.stores import Store
from agentloop.tools import Tool, ToolOptions, tool

if TYPE_CHECKING:
    from agentloop.graph import Graph
    from agentloop.retrieval.index import Index
    from agentloop.runs import RunResult


class _GraphBody(JsonBody):
    """What a graph does as a tool: one run, from a state made of the arguments."""

    def __init__(
        self,
        graph: Graph[Any],
        name: str,
        gives: str | None,
        model: Model | None,
        store: Store | None,
    ) -> None:
        field = graph.state.model_fields[gives] if gives is not None else None
        self._result: TypeAdapter[Any] = TypeAdapter(
            graph.state if field is None else field.rebuild_annotation()
        )
        returns = inlined(without_titles(self._result.json_schema(mode="serialization")))
        super().__init__(name, self._run, returns if store is None else None)  # else it may ask
        self._graph = graph
        self._gives = gives
        self._model = model
        self._store = store

    def prepare(self, request: Mapping[str, Any]) -> Callable[[], Awaitable[Any]]:
        """The run, ready to start; `ValidationError` if a validator refuses its state."""
        self._graph.state.model_validate(dict(request))
        return super().prepare(request)

    async def _run(self, request: dict[str, Any]) -> Any:
        state: BaseModel = self._graph.state.model_validate(request)
        name = f"{self._name}-{uuid4().hex[:12]}" if self._store is not None else None
        model = self._model or _model_here()
        return self.value(await self._graph.run(state, run=name, store=self._store, model=model))

    def value(self, result: RunResult[Any]) -> Any:
        """What a run gave, or what it asks, as JSON data."""
        if result.waiting:
            return {"run": result.run, "waiting": result.questions}
        value = result.state if self._gives is None else getattr(result.state, self._gives)
        return self._result.dump_python(value, mode="json")


def graph_tool(
    graph: Graph[Any],
    description: str,
    *,
    name: str | None = None,
    takes: Collection[str] | None = None,
    gives: str | None = None,
    model: Model | None = None,
    store: Store | None = None,
    **options: Unpack[ToolOptions],
) -> Tool[..., Any]:
    """A graph as a tool: a call is a run.

    Args:
        graph: The graph.
        description: What it is for, for models.
        name: Another name than the graph's.
        takes: The fields of its state that are its arguments, by default all.
        gives: The field that is its result, by default the whole state.
        model: The model that its nodes use; by default that of the run that calls it.
        store: Where its runs are recorded. With one, a run that waits for an answer gives its name
            and its questions as the result, and goes on by `resume_tool`.
        **options: As for `@tool`. Unless told otherwise, a graph counts as acting (`"once"`).

    Raises:
        GraphBuildError: The state has no such field, or needs one that is not taken.
    """
    fields = graph.state.model_fields
    taken = tuple(fields) if takes is None else tuple(takes)
    unknown = [field for field in (*taken, *([gives] if gives else [])) if field not in fields]
    missing = [key for key, field in fields.items() if field.is_required() and key not in taken]
    if unknown or missing:
        problem = f"has no field {unknown[0]!r}" if unknown else f"needs {missing[0]!r} as well"
        raise GraphBuildError(
            f"graph {graph.name!r} as a tool: its state {graph.state.__name__} {problem}; "
            f"it has {', '.join(fields)}"
        )
    label = name or re.sub(r"\W", "_", graph.name)
    settings: ToolOptions = {"effect": "once"}
    settings.update(options)
    body = _GraphBody(graph, label, gives, model, store)
    return Tool(label, description, _argument_schema(graph, taken), body=body, **settings)


def resume_tool(
    graph: Graph[Any], *, store: Store, name: str | None = None, model: Model | None = None
) -> Tool[..., Any]:
    """A tool that answers the questions of a waiting run that `graph_tool` began.

    Args:
        graph: The graph.
        store: Where its runs are recorded.
        name: The tool's name, by default the graph's with `_answer`.
        model: The model that its nodes use.
    """
    label = re.sub(r"\W", "_", graph.name)
    body = _GraphBody(graph, label, None, model, store)

    async def answer(run: str, answers: dict[str, Any]) -> dict[str, Any]:
        if run not in {info.name for info in store.runs()}:
            raise GraphError(f"there is no run {shorten(run)} of {label}; use the name it gave")
        served = model or _model_here()
        result = await graph.run(run=run, store=store, answers=answers, model=served)
        value: dict[str, Any] = body.value(result)
        return value

    about = f"Answer what a run of {label} asks: its name, and an answer for each of its questions."
    return tool(name=name or f"{label}_answer", description=about, effect="once")(answer)


def index_tool(index: Index, description: str, *, name: str = "search") -> Tool[..., Any]:
    """A search over documents as a tool.

    Args:
        index: The index.
        description: What the documents are about, for models.
        name: The tool's name.
    """

    async def search(
        query: str, top_k: Annotated[int, Field(ge=1, le=20)] = 5
    ) -> list[dict[str, Any]]:
        """Find passages.

        Args:
            query: What to look for.
            top_k: How many passages to give at most.
        """
        hits = await index.asearch(query, top_k)
        return [
            {
                "path": hit.path,
                "start": hit.start,
                "end": hit.end,
                "text": hit.text,
                "title": hit.title,
                "score": hit.score,
            }
            for hit in hits
        ]

    return tool(name=name, description=description)(search)


def _argument_schema(graph: Graph[Any], taken: tuple[str, ...]) -> Schema:
    whole = inlined(without_titles(graph.state.model_json_schema()))
    properties = {field: whole["properties"][field] for field in taken}
    required = [field for field in whole.get("required", ()) if field in taken]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    return schema | ({"$defs": whole["$defs"]} if "$defs" in whole else {})


def _model_here() -> Model | None:
    try:
        return current_model()
    except GraphError:
        return None
