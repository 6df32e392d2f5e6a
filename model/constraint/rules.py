"""What each JSON Schema keyword means, as a table of rules.

Each rule turns a group of keywords that belong together into one expression, and says how exact
that is; docs/json-schema.md is generated from this table.
"""

from __future__ import annotations

from agentloop.errors import ConstraintError
from agentloop.model.constraint.array_assertions import (
    AllDifferent,
    Distinct,
    Elements,
    contains,
    elements,
    num_items,
)
from agentloop.model.constraint.expression import (
    FALSE,
    KINDS,
    TRUE,
    Expr,
    Kind,
    KindIs,
    conjunction,
    disjunction,
    exactly_one,
    negation,
)
from agentloop.model.constraint.finite import finite_values
from agentloop.model.constraint.formats import FORMATS
from agentloop.model.constraint.given_rules import GIVEN_RULES
from agentloop.model.constraint.json_types import is_list
from agentloop.model.constraint.literals import OBJECT, TYPES, equal_to, one_of_values
from agentloop.model.constraint.numerals import MAX_REMAINDERS, Bounds, multiples
from agentloop.model.constraint.object_assertions import (
    KeysAre,
    Required,
    Shape,
    num_properties,
    required,
)
from agentloop.model.constraint.rule import Rule
from agentloop.model.constraint.scalar_assertions import (
    HasFormat,
    Integral,
    Length,
    MultipleOf,
    Within,
)
from agentloop.model.constraint.scope import Scope
from agentloop.model.constraint.unevaluated import (
    MAX_CONDITIONS,
    unevaluated_items,
    unevaluated_properties,
)


def of_type(scope: Scope) -> Expr:
    """`type`: one type or several."""
    value = scope.schema["type"]
    names = value if is_list(value) else [value]
    kinds: set[Kind] = set()
    for name in names:
        if not isinstance(name, str) or name not in TYPES:
            raise scope.here.refusal("type", f"must be of {sorted(TYPES)}, got {name!r}")
        found = TYPES[name]
        if isinstance(found, KindIs):
            kinds |= found.kinds
    whole = KindIs(frozenset(kinds)) if kinds else FALSE
    if "integer" in names and "number" not in kinds:
        if scope.here.draft == 4:  # where 1.0 is no integer
            return disjunction(whole, conjunction(TYPES["number"], Integral(is_literal=True)))
        return disjunction(whole, TYPES["integer"])
    return TRUE if len(kinds) == len(KINDS) else whole


def enumeration(scope: Scope) -> Expr:
    """`enum` and `const`."""
    found: list[Expr] = []
    for keyword in ("enum", "const"):
        if keyword not in scope.schema or (keyword == "const" and scope.here.draft < 6):
            continue
        value = scope.schema[keyword]
        values = [value] if keyword == "const" else value
        if not is_list(values):
            raise scope.here.refusal(keyword, f"must be a list, got {value!r}")
        try:
            found.append(one_of_values(values))
        except ValueError as error:
            raise scope.here.refusal(keyword, str(error)) from None
    return conjunction(*found)


def all_of(scope: Scope) -> Expr:
    """`allOf`: the intersection."""
    return conjunction(*scope.subs("allOf"))


def any_of(scope: Scope) -> Expr:
    """`anyOf`: the union."""
    return disjunction(*scope.subs("anyOf"))


def one_of(scope: Scope) -> Expr:
    """`oneOf`: exactly one."""
    return exactly_one(*scope.subs("oneOf"))


def not_(scope: Scope) -> Expr:
    """`not`: the complement."""
    return negation(scope.sub("not"))


def if_then_else(scope: Scope) -> Expr:
    """`if`, `then`, `else`."""
    if "if" not in scope.schema:
        return TRUE
    test = scope.sub("if")
    then = scope.sub("then") if "then" in scope.schema else TRUE
    other = scope.sub("else") if "else" in scope.schema else TRUE
    if then == TRUE and other == TRUE:
        return TRUE
    return disjunction(conjunction(test, then), conjunction(negation(test), other))


def reference(scope: Scope) -> Expr:
    """`$ref`, `$dynamicRef`, `$recursiveRef`."""
    document, here = scope.document, scope.here
    return conjunction(
        *(
            document.reference(document.resolve(here, keyword))
            for keyword in ("$ref", "$dynamicRef", "$recursiveRef")
            if keyword in here.schema
        )
    )


def string_length(scope: Scope) -> Expr:
    """`minLength` and `maxLength`, in code points."""
    lo, hi = scope.count("minLength") or 0, scope.count("maxLength")
    if hi is not None and hi < lo:
        return negation(TYPES["string"])
    return TRUE if lo == 0 and hi is None else Length(lo, hi)


def string_pattern(scope: Scope) -> Expr:
    """`pattern`: some part of the string matches."""
    return scope.pattern("pattern", scope.schema["pattern"])


def string_format(scope: Scope) -> Expr:
    """`format`, where formats are asserted and this one is known."""
    name = scope.schema["format"]
    if scope.document.formats == "annotate" or name not in FORMATS:
        return TRUE
    return HasFormat(name)


def number_bounds(scope: Scope) -> Expr:
    """`minimum`, `maximum` and their exclusive forms."""
    lo, hi = scope.number("minimum"), scope.number("maximum")
    if (
        scope.here.draft == 4
        or isinstance(scope.schema.get("exclusiveMinimum"), bool)
        or isinstance(scope.schema.get("exclusiveMaximum"), bool)
    ):
        is_lo_open = scope.schema.get("exclusiveMinimum") is True and lo is not None
        is_hi_open = scope.schema.get("exclusiveMaximum") is True and hi is not None
        return (
            Within(Bounds(lo, hi, is_lo_open, is_hi_open))
            if lo is not None or hi is not None
            else TRUE
        )
    parts: list[Expr] = [] if lo is None and hi is None else [Within(Bounds(lo, hi))]
    over, under = scope.number("exclusiveMinimum"), scope.number("exclusiveMaximum")
    if over is not None or under is not None:
        parts.append(Within(Bounds(over, under, is_lo_open=True, is_hi_open=True)))
    return conjunction(*parts)


def multiple_of(scope: Scope) -> Expr:
    """`multipleOf`, by a table of remainders."""
    step = scope.number("multipleOf")
    if step is None or step <= 0:
        raise scope.here.refusal("multipleOf", "must be above 0")
    try:
        multiples(step)
    except ConstraintError as error:
        raise scope.here.refusal("multipleOf", str(error)) from None
    return MultipleOf(step)


def array_items(scope: Scope) -> Expr:
    """`prefixItems`, `items` and the older `items` list with `additionalItems`."""
    schema = scope.schema
    prefix: tuple[Expr, ...] = ()
    rest: Expr = TRUE
    if isinstance(schema.get("items"), list):
        if scope.here.draft == 2020 and "prefixItems" in schema:
            raise scope.here.refusal("items", "a list here needs draft 2019-09 or older")
        prefix = tuple(scope.sub("items", i) for i in range(len(schema["items"])))
        rest = scope.sub("additionalItems") if "additionalItems" in schema else TRUE
    else:
        if "prefixItems" in schema and scope.here.draft == 2020:
            prefix = tuple(scope.subs("prefixItems"))
        rest = scope.sub("items") if "items" in schema else TRUE
    return elements(prefix, rest)


def array_size(scope: Scope) -> Expr:
    """`minItems` and `maxItems`."""
    found = num_items(scope.count("minItems") or 0, scope.count("maxItems"))
    return negation(TYPES["array"]) if found == FALSE else found


def unique_items(scope: Scope) -> Expr:
    """`uniqueItems`, over a finite set of items."""
    if scope.schema["uniqueItems"] is not True:
        return TRUE
    most = scope.count("maxItems")
    shape = array_items(scope)
    prefix, rest = (shape.prefix, shape.rest) if isinstance(shape, Elements) else ((), TRUE)
    if (most is not None and most <= 1) or (len(prefix) <= 1 and rest == FALSE):
        return TRUE
    values: dict[Expr, None] = {}
    for item in prefix if rest == FALSE else (*prefix, rest):
        found = finite_values(item)
        if found is None:
            return AllDifferent(scope.here.pointer)
        values.update(dict.fromkeys(map(equal_to, found)))
    return Distinct(tuple(values))


def array_contains(scope: Scope) -> Expr:
    """`contains` with `minContains` and `maxContains`."""
    if "contains" not in scope.schema:
        return TRUE
    lo, hi = 1, None
    if scope.here.draft >= 2019:
        least = scope.count("minContains")
        lo, hi = (1 if least is None else least), scope.count("maxContains")
    found = contains(scope.sub("contains"), lo, hi)
    return negation(TYPES["array"]) if found == FALSE else found


def object_shape(scope: Scope) -> Expr:
    """`properties`, `patternProperties`, `additionalProperties`."""
    properties = tuple(
        (name, scope.sub("properties", name)) for name in scope.mapping("properties")
    )
    patterns = tuple(
        (scope.pattern("patternProperties", pattern), scope.sub("patternProperties", pattern))
        for pattern in scope.mapping("patternProperties")
    )
    is_open = scope.schema.get("additionalProperties", False) is not False
    additional = (
        scope.sub("additionalProperties") if "additionalProperties" in scope.schema else TRUE
    )
    return Shape(properties, patterns, additional, is_open)


def object_required(scope: Scope) -> Expr:
    """`required`."""
    value = scope.schema["required"]
    if isinstance(value, bool):  # draft 3 wrote it beside the property; it says nothing here
        return TRUE
    return required(scope.names("required", value))


def object_size(scope: Scope) -> Expr:
    """`minProperties` and `maxProperties`."""
    found = num_properties(scope.count("minProperties") or 0, scope.count("maxProperties"))
    return negation(OBJECT) if found == FALSE else found


def property_names(scope: Scope) -> Expr:
    """`propertyNames`."""
    key = scope.sub("propertyNames")
    return TRUE if key == TRUE else KeysAre(key)


def _where_present(key: str, then: Expr) -> Expr:
    return disjunction(negation(conjunction(OBJECT, Required((key,)))), then)


def dependencies(scope: Scope) -> Expr:
    """`dependentRequired`, `dependentSchemas` and the older `dependencies`."""
    found: list[Expr] = []
    for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
        if keyword.startswith("dependent") and scope.here.draft < 2019:
            continue
        for key, value in scope.mapping(keyword).items():
            if isinstance(value, list):
                then = required(scope.names(keyword, value))
            elif isinstance(value, str):  # as draft 3 wrote one name
                then = Required((value,))
            else:
                then = scope.sub(keyword, key)
            found.append(_where_present(key, then))
    return conjunction(*found)


RULES: tuple[Rule, ...] = (
    Rule(
        ("$ref", "$dynamicRef", "$recursiveRef"),
        reference,
        "bounded",
        "recursion to `max_depth`; within the document, `$id`, `$anchor` and pointers included",
    ),
    Rule(("type",), of_type),
    Rule(
        ("properties", "patternProperties", "additionalProperties"),
        object_shape,
        "bounded",
        "known keys in the schema's order; other keys where they are asked for",
    ),
    Rule(("required",), object_required),
    Rule(
        ("minProperties", "maxProperties"),
        object_size,
        "bounded",
        "at most one key that no schema names; upper bounds to `max_counted_items`",
    ),
    Rule(
        ("unevaluatedProperties",),
        unevaluated_properties,
        note=f"refused where it depends on more than {MAX_CONDITIONS} patterns",
        first_draft=2019,
    ),
    Rule(("propertyNames",), property_names, first_draft=6),
    Rule(("dependentRequired", "dependentSchemas", "dependencies"), dependencies),
    Rule(("prefixItems", "items", "additionalItems"), array_items),
    Rule(
        ("minItems", "maxItems"),
        array_size,
        "bounded",
        "upper bounds to `max_counted_items`",
    ),
    Rule(
        ("uniqueItems",),
        unique_items,
        "bounded",
        "items that can be listed come in the schema's order if more than 6; others differ in how"
        " they begin; refused where negated",
    ),
    Rule(
        ("unevaluatedItems",),
        unevaluated_items,
        note=f"refused where `contains` depends on more than {MAX_CONDITIONS} subschemas",
        first_draft=2019,
    ),
    Rule(("contains", "minContains", "maxContains"), array_contains, first_draft=6),
    Rule(
        ("minLength", "maxLength"),
        string_length,
        "bounded",
        "in code points; upper bounds to `max_counted_length`",
    ),
    Rule(
        ("pattern",),
        string_pattern,
        exactness="bounded",
        note="an ECMA-262 subset, as a search; classes as every engine reads them",
    ),
    Rule(("format",), string_format, "bounded", "the known formats; others are remarks"),
    Rule(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        number_bounds,
        exactness="bounded",
        note="in decimal arithmetic; fractions of at most 15 digits",
    ),
    Rule(
        ("multipleOf",),
        multiple_of,
        exactness="bounded",
        note=f"in decimal arithmetic; refused above {MAX_REMAINDERS:,} units of the last place",
    ),
    Rule(("enum", "const"), enumeration),
    Rule(("allOf",), all_of),
    Rule(("anyOf",), any_of),
    Rule(("oneOf",), one_of),
    Rule(("not",), not_),
    Rule(("if", "then", "else"), if_then_else, first_draft=7),
    *GIVEN_RULES,
)

ASSERTING = frozenset(keyword for rule in RULES for keyword in rule.keywords)
"""Keywords that assert something; a schema with none of them permits everything."""
