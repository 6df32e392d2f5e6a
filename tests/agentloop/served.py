"""What tests serve by name, as a user's module would hold it."""

from typing import Annotated

from pydantic import BaseModel, Field

from agentloop import END, START, Graph, ask, tool


@tool(effect="once", sends=True)
async def greet(name: Annotated[str, Field(max_length=20)]) -> str:
    """Greet somebody."""
    return f"Hello {name}"


@tool
def triple(number: int) -> int:
    """Three times a number."""
    return 3 * number


@tool
def wrong() -> int:
    """Break its word."""
    return "many"  # type: ignore[return-value]  # pyright: ignore[reportReturnType] - the mistake


class Order(BaseModel):
    """Order something, after somebody agreed."""

    what: str
    is_agreed: bool = False


async def agree(s: Order) -> None:
    s.is_agreed = await ask(f"Order {s.what}?", bool)


several = [greet, triple]
order = Graph(Order, name="order").chain(START, agree, END)
nothing = 3
