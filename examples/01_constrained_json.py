"""JSON that cannot be malformed: a pydantic class in, an instance of it out.

Run it with `python examples/01_constrained_json.py`.

The constraint is applied to the whole canvas at every step, so there is nothing to parse leniently,
to repair or to retry. Bounds, lengths and patterns of the class hold as well.
"""

from typing import Literal

from pydantic import BaseModel, Field

from agentloop.model.constraint import Choice, JsonSchema, Regex
from agentloop.model.lm import DiffusionLM


class Ticket(BaseModel):
    """A support ticket."""

    product: Literal["phone", "laptop", "watch"]
    urgency: int = Field(ge=1, le=5)
    summary: str = Field(min_length=3, max_length=40)
    is_defect: bool


MESSAGE = "My laptop does not start any more since this morning. I need it for work today!"


def main() -> None:
    """Fill in a form, choose a label, and write a time."""
    with DiffusionLM.load("default") as lm:
        form = lm.generate_sync(
            f"{MESSAGE}\n\nFill in the ticket: product, urgency, summary, is_defect.",
            constraint=JsonSchema(Ticket),
        )
        print(f"ticket  {form.value!r}")
        print(f"        {form.num_steps} steps for {form.num_tokens} tokens")
        print(f"        P(valid) by itself: {form.p_valid[0]:.1e} at first, now certain")

        label = lm.generate_sync(
            f"{MESSAGE}\n\nIs this a question or a complaint?",
            constraint=Choice(["question", "complaint"]),
        )
        print(f"label   {label.value}")

        time = lm.generate_sync(
            "When do shops open? Answer with a time.",
            constraint=Regex("([01][0-9]|2[0-3]):[0-5][0-9]"),
        )
        print(f"time    {time.value}")


if __name__ == "__main__":
    main()
